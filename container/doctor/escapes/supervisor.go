package escapes

// supervisorAttacks want to keep the supervisor, process 1 of an exec, from running: then nothing would end the exec. Without
// a sandbox they take another process of the same user.
func supervisorAttacks() []Attack {
	return []Attack{
		{
			Name: "lower the priority of a process of the launcher's", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "EPERM",
			Program: `os.setpriority(os.PRIO_PROCESS, int(sys.argv[1]), 19); broke()`,
		},
		{
			Name: "take its scheduler", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "EPERM",
			Program: `os.sched_setscheduler(int(sys.argv[1]), os.SCHED_IDLE, os.sched_param(0)); broke()`,
		},
		{
			Name: "bind it to one processor", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "EPERM",
			Program: `os.sched_setaffinity(int(sys.argv[1]), {min(os.sched_getaffinity(0))}); broke()`,
		},
		{
			Name: "let its input and output wait", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "EPERM",
			Program: `call("ioprio_set", 1, int(sys.argv[1]), 3 << 13); broke()`, // IOPRIO_CLASS_IDLE
		},
		{
			Name: "limit what it may open", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "EPERM", LeansUser: "filter",
			Program: `call("prlimit64", int(sys.argv[1]), 7, struct.pack("QQ", 99, 99), None); broke()`,
		},
		{
			Name: "limit it past the filter", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "ESRCH", LeansUser: "filter",
			Program: `call("prlimit64", int(sys.argv[1]) | 1 << 32, 7, struct.pack("QQ", 98, 98), None); broke()`,
		},
		{
			Name: "lower the priority of its session", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "ENOENT", LeansUser: "proc masks", Program: `
os.write(os.open("/proc/%s/autogroup" % sys.argv[1], os.O_WRONLY), b"1"); broke()`,
		},
		{
			Name: "have the kernel kill it first", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "ENOENT", LeansUser: "proc masks", Program: `
os.write(os.open("/proc/%s/oom_score_adj" % sys.argv[1], os.O_WRONLY), b"500"); broke()`,
		},
		{
			Name: "write any file of its in /proc", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "ENOENT", Leans: "proc masks", Program: `
for n in "comm", "coredump_filter", "clear_refs", "sched", "timerslack_ns", "task/%s/comm" % sys.argv[1]:
    attempt(lambda: (os.open("/proc/%s/%s" % (sys.argv[1], n), os.O_WRONLY), broke(n)))`,
		},
	}
}
