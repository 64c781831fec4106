package integration

// supervisorAttacks want to keep the supervisor, process 1 of an exec, from running: then nothing would end the exec. Without
// a sandbox they take another process of the same user.
var supervisorAttacks = []attack{
	{
		name: "lower the priority of a process of the launcher's", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "EPERM",
		program: `os.setpriority(os.PRIO_PROCESS, int(sys.argv[1]), 19); broke()`,
	},
	{
		name: "take its scheduler", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "EPERM",
		program: `os.sched_setscheduler(int(sys.argv[1]), os.SCHED_IDLE, os.sched_param(0)); broke()`,
	},
	{
		name: "bind it to one processor", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "EPERM",
		program: `os.sched_setaffinity(int(sys.argv[1]), {min(os.sched_getaffinity(0))}); broke()`,
	},
	{
		name: "let its input and output wait", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "EPERM",
		program: `call("ioprio_set", 1, int(sys.argv[1]), 3 << 13); broke()`, // IOPRIO_CLASS_IDLE
	},
	{
		name: "limit what it may open", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "EPERM", leansUser: "filter",
		program: `call("prlimit64", int(sys.argv[1]), 7, struct.pack("QQ", 99, 99), None); broke()`,
	},
	{
		name: "limit it past the filter", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "ESRCH", leansUser: "filter",
		program: `call("prlimit64", int(sys.argv[1]) | 1 << 32, 7, struct.pack("QQ", 98, 98), None); broke()`,
	},
	{
		name: "lower the priority of its session", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "ENOENT", leansUser: "proc masks", program: `
os.write(os.open("/proc/%s/autogroup" % sys.argv[1], os.O_WRONLY), b"1"); broke()`,
	},
	{
		name: "have the kernel kill it first", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "ENOENT", leansUser: "proc masks", program: `
os.write(os.open("/proc/%s/oom_score_adj" % sys.argv[1], os.O_WRONLY), b"500"); broke()`,
	},
	{
		name: "write any file of its in /proc", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "ENOENT", leans: "proc masks", program: `
for n in "comm", "coredump_filter", "clear_refs", "sched", "timerslack_ns", "task/%s/comm" % sys.argv[1]:
    attempt(lambda: (os.open("/proc/%s/%s" % (sys.argv[1], n), os.O_WRONLY), broke(n)))`,
	},
}
