package integration

// processAttacks want another process, its memory, descriptors or variables, or something of the kernel's that processes share.
// Inside, process 1 is the launcher's: the supervisor, whose directory in /proc is covered.
var processAttacks = []attack{
	{
		name: "see a process of the host", args: []string{"$MARK"}, fails: "ENOENT", program: `
for p in os.listdir("/proc"):
    if p.isdigit(): attempt(lambda: sys.argv[1].encode() in open("/proc/%s/cmdline" % p, "rb").read().split(b"\0") and broke(p))`,
	},
	{name: "signal a process of the same user", args: []string{"$VICTIM"}, fails: "ESRCH", program: `os.kill(int(sys.argv[1]), 0); broke()`},
	{name: "open a process of the same user", args: []string{"$VICTIM"}, fails: "ESRCH", program: `os.pidfd_open(int(sys.argv[1])); broke()`},
	{
		name: "trace a process of the launcher's", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "EPERM", program: `
p = int(sys.argv[1])
call("ptrace", 16, p, 0, 0); broke() # PTRACE_ATTACH
os.waitpid(p, 0x40000000); call("ptrace", 17, p, 0, 0)`,
	},
	{
		name: "seize it", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "EPERM",
		program: `call("ptrace", 0x4206, int(sys.argv[1]), 0, 0); broke()`,
	},
	{
		name: "read the environment of a process of the launcher's", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "ENOENT",
		program: `open("/proc/%s/environ" % sys.argv[1], "rb").read(); broke()`,
	},
	{
		name: "read its memory", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "ENOENT", program: `
at = int(open("/proc/%s/maps" % sys.argv[1]).readline().split("-")[0], 16)
m = open("/proc/%s/mem" % sys.argv[1], "rb"); m.seek(at); m.read(16); broke()`,
	},
	{
		name: "open its memory for writing", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "ENOENT",
		program: `os.open("/proc/%s/mem" % sys.argv[1], os.O_RDWR); broke()`,
	},
	{
		name: "copy into its memory", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "EPERM", program: `
# Nothing is mapped at address 0: EFAULT means that it may.
buf = ctypes.create_string_buffer(8); vec = lambda at: struct.pack("PP", at, 8)
for name in "process_vm_readv", "process_vm_writev":
    attempt(past, (errno.EFAULT,), call, name, int(sys.argv[1]), vec(ctypes.addressof(buf)), 1, vec(0), 1, 0)`,
	},
	{
		name: "take a descriptor of it", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "EPERM",
		program: `call("pidfd_getfd", os.pidfd_open(int(sys.argv[1])), 0, 0); broke()`,
	},
	{
		name: "compare its files", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "EPERM",
		program: `call("kcmp", os.getpid(), int(sys.argv[1]), 2, 0, 0); broke()`, // KCMP_FILES
	},
	{name: "go through its root", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "ENOENT", program: `os.listdir("/proc/%s/root" % sys.argv[1]); broke()`},
	{name: "go through its directory", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "ENOENT", program: `os.listdir("/proc/%s/cwd" % sys.argv[1]); broke()`},
	{
		name: "follow its descriptors", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "ENOENT", program: `
for n in range(16):
    attempt(lambda: broke(os.readlink("/proc/%s/fd/%d" % (sys.argv[1], n))))
    attempt(lambda: (os.open("/proc/%s/fd/%d" % (sys.argv[1], n), os.O_RDONLY | os.O_NONBLOCK), broke("open", n)))`,
	},
	{name: "open its executable", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "ENOENT", program: `open("/proc/%s/exe" % sys.argv[1], "rb").read(4); broke()`},
	{
		name: "open its namespaces", args: []string{"$VICTIM"}, inside: []string{"1"}, fails: "ENOENT", program: `
for n in "mnt", "net", "pid", "user", "ipc": attempt(lambda: (os.open("/proc/%s/ns/%s" % (sys.argv[1], n), os.O_RDONLY), broke(n)))`,
	},
	{name: "change the limits of a process of the same user", args: []string{"$VICTIM"}, fails: "ESRCH", program: `
call("prlimit64", int(sys.argv[1]), 7, None, ctypes.create_string_buffer(16)); broke()`},
	{
		name: "enter a namespace", privileged: true, fails: "EPERM", program: `
for n in "uts", "net", "mnt": attempt(lambda: (call("setns", os.open("/proc/self/ns/" + n, os.O_RDONLY), 0), broke(n)))`,
	},
	{
		name: "enter the namespaces of a process", privileged: true, inside: []string{"1"}, args: []string{"self"}, fails: "EPERM", program: `
p = os.getpid() if sys.argv[1] == "self" else int(sys.argv[1])
call("setns", os.pidfd_open(p), NEWNS | NEWUTS); broke()`,
	},
	{
		name: "find the launcher's variables in any process", args: []string{"$VARIABLE"}, fails: "ENOENT", leans: "environment", program: `
for p in os.listdir("/proc"):
    if p.isdigit(): attempt(lambda: sys.argv[1].encode() in open("/proc/%s/environ" % p, "rb").read() and broke(p))`,
	},
	{
		name: "read a descriptor that the caller has left open", args: []string{"$SECRET"}, fails: "EBADF ESPIPE", program: `
for fd in range(3, 40):
    attempt(lambda: b"THE-SECRET" in os.pread(fd, 99, 0) and broke(fd))`,
	},
	{name: "attach shared memory of the host", args: []string{"$KEY"}, fails: "ENOENT", leans: "ipc", program: `call("shmget", int(sys.argv[1]), 4096, 0); broke()`},
	{name: "use semaphores of the host", args: []string{"$KEY"}, fails: "ENOENT", leans: "ipc", program: `call("semget", int(sys.argv[1]), 1, 0); broke()`},
	{name: "use a message queue of the host", args: []string{"$KEY"}, fails: "ENOENT", leans: "ipc", program: `call("msgget", int(sys.argv[1]), 0); broke()`},
	{name: "use the keyrings", fails: "EPERM", leans: "filter", program: `call("keyctl", 0, -3, 1); broke()`},
	{name: "add a key", fails: "EPERM", leans: "filter", program: `call("add_key", b"user", b"sandboxrun-test", b"x", 1, -1); broke()`},
	{name: "ask for a key", fails: "EPERM", leans: "filter", program: `
attempt(past, (errno.ENOKEY,), call, "request_key", b"user", b"sandboxrun-none", None, 0)`},
	{
		name: "read the caller's keys", args: []string{"$CALLERSKEY"}, fails: "EPERM ENOKEY", program: `
for ring in -3, -4, -5: # of the session, the user, the user's sessions
    attempt(lambda: broke(call("keyctl", 10, ring, b"user", sys.argv[1].encode(), 0)))`,
	},
	{name: "make a user namespace", fails: "EPERM", leans: "filter", program: `call("unshare", NEWUSER); broke()`},
	{name: "clone into a user namespace", fails: "EPERM", leans: "filter", program: `clone(NEWUSER); broke()`},
	{name: "clone into a user namespace by clone3", fails: "ENOSYS", leans: "filter", program: `
pid = call("clone3", struct.pack("QQQQQQQQ", NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0), 64)
if pid == 0: os._exit(0)
os.waitpid(pid, 0); broke()`},
	{name: "make any other namespace", privileged: true, fails: "EPERM", program: `
for flag in NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWPID, NEWNET, NEWTIME: attempt(lambda: (call("unshare", flag), broke(hex(flag))))`},
	{name: "clone into any other namespace", privileged: true, fails: "EPERM", program: `
for flag in NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWPID, NEWNET: attempt(lambda: (clone(flag), broke(hex(flag))))`},
	{name: "change to another user", rootOnly: true, fails: "EINVAL", program: `os.setuid(4242); broke()`},
	{name: "take another group", rootOnly: true, fails: "EINVAL EPERM", program: `
for f in lambda: os.setgid(4242), lambda: os.setgroups([4242]): attempt(lambda: (f(), broke()))`},
	{name: "raise an ambient capability", privileged: true, fails: "EPERM", program: `
head, sets = struct.pack("Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
call("capget", head, sets)
n = list(struct.unpack("6I", sets)); n[2] = n[1]; n[5] = n[4]
call("capset", head, struct.pack("6I", *n)); call("prctl", 47, 2, 0, 0, 0); broke()`},
	{name: "take every capability", privileged: true, fails: "EPERM", program: `
call("capset", struct.pack("Ii", 0x20080522, 0), struct.pack("6I", 0x1fffff, 0x1fffff, 0, 0, 0, 0)); broke()`},
	{name: "become what a setuid program is", userOnly: true, fails: "", program: setuidProgram},
	{name: "become whom a setuid program belongs to", rootOnly: true, args: []string{"$WORK/setuid"}, fails: "", program: `
out = os.popen(sys.argv[1] + " -u").read(); out.strip() == "4242" and broke(out)`},
	{name: "raise a limit", rootOnly: true, fails: "EPERM", program: `
import resource
s, h = resource.getrlimit(resource.RLIMIT_RTPRIO); attempt(lambda: (resource.setrlimit(resource.RLIMIT_RTPRIO, (s, h + 1)), broke()))
try: resource.setrlimit(resource.RLIMIT_RTPRIO, (s, h + 1)); broke()
except ValueError: met_error(errno.EPERM)`},
	{name: "run before everybody else", rootOnly: true, fails: "EACCES EPERM", program: `
attempt(lambda: (os.setpriority(os.PRIO_PROCESS, 0, -5), broke()))
attempt(lambda: (os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)), broke()))`},
	{name: "be the last that the kernel kills for memory", rootOnly: true, fails: "EACCES", program: `
f = os.open("/proc/self/oom_score_adj", os.O_WRONLY); os.write(f, b"-999"); broke()`},
	{name: "switch address randomisation off", fails: "EPERM", leans: "filter", program: `call("personality", 0x40000); broke()`},
}

// setuidProgram starts su, which waits for a password, and looks at whose rights it has.
const setuidProgram = `
import subprocess
p = subprocess.Popen(["/usr/bin/su", "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
for _ in range(20):
    ids = [l.split()[1:3] for l in open("/proc/%d/status" % p.pid) if l.startswith("Uid")]
    if ids and ids[0][0] != ids[0][1]: broke(ids); break
    time.sleep(0.01)
p.kill()`
