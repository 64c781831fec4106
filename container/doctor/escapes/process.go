package escapes

// processAttacks want another process, its memory, descriptors or variables, or something of the kernel's that processes share.
// Inside, process 1 is the launcher's: the supervisor, whose directory in /proc is covered.
func processAttacks() []Attack { //nolint:funlen // a table
	return []Attack{
		{
			Name: "see a process of the host", Args: []string{"$MARK"}, Fails: "ENOENT", Program: `
for p in os.listdir("/proc"):
    if p.isdigit(): attempt(lambda: sys.argv[1].encode() in open("/proc/%s/cmdline" % p, "rb").read().split(b"\0") and broke(p))`,
		},
		{Name: "signal a process of the same user", Args: []string{"$VICTIM"}, Fails: "ESRCH", Program: `os.kill(int(sys.argv[1]), 0); broke()`},
		{Name: "open a process of the same user", Args: []string{"$VICTIM"}, Fails: "ESRCH", Program: `os.pidfd_open(int(sys.argv[1])); broke()`},
		{
			Name: "trace a process of the launcher's", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "EPERM", Program: `
p = int(sys.argv[1])
call("ptrace", 16, p, 0, 0); broke() # PTRACE_ATTACH
os.waitpid(p, 0x40000000); call("ptrace", 17, p, 0, 0)`,
		},
		{
			Name: "seize it", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "EPERM",
			Program: `call("ptrace", 0x4206, int(sys.argv[1]), 0, 0); broke()`,
		},
		{
			Name: "read the environment of a process of the launcher's", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "ENOENT",
			Program: `open("/proc/%s/environ" % sys.argv[1], "rb").read(); broke()`,
		},
		{
			Name: "read its memory", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "ENOENT", Program: `
at = int(open("/proc/%s/maps" % sys.argv[1]).readline().split("-")[0], 16)
m = open("/proc/%s/mem" % sys.argv[1], "rb"); m.seek(at); m.read(16); broke()`,
		},
		{
			Name: "open its memory for writing", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "ENOENT",
			Program: `os.open("/proc/%s/mem" % sys.argv[1], os.O_RDWR); broke()`,
		},
		{
			Name: "copy into its memory", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "EPERM", Program: `
# Nothing is mapped at address 0: EFAULT means that it may.
buf = ctypes.create_string_buffer(8); vec = lambda at: struct.pack("PP", at, 8)
for name in "process_vm_readv", "process_vm_writev":
    attempt(past, (errno.EFAULT,), call, name, int(sys.argv[1]), vec(ctypes.addressof(buf)), 1, vec(0), 1, 0)`,
		},
		{
			Name: "take a descriptor of it", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "EPERM",
			Program: `call("pidfd_getfd", os.pidfd_open(int(sys.argv[1])), 0, 0); broke()`,
		},
		{
			Name: "compare its files", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "EPERM",
			Program: `call("kcmp", os.getpid(), int(sys.argv[1]), 2, 0, 0); broke()`, // KCMP_FILES
		},
		{Name: "go through its root", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "ENOENT", Program: `os.listdir("/proc/%s/root" % sys.argv[1]); broke()`},
		{Name: "go through its directory", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "ENOENT", Program: `os.listdir("/proc/%s/cwd" % sys.argv[1]); broke()`},
		{
			Name: "follow its descriptors", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "ENOENT", Program: `
for n in range(16):
    attempt(lambda: broke(os.readlink("/proc/%s/fd/%d" % (sys.argv[1], n))))
    attempt(lambda: (os.open("/proc/%s/fd/%d" % (sys.argv[1], n), os.O_RDONLY | os.O_NONBLOCK), broke("open", n)))`,
		},
		{Name: "open its executable", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "ENOENT", Program: `open("/proc/%s/exe" % sys.argv[1], "rb").read(4); broke()`},
		{
			Name: "open its namespaces", Args: []string{"$VICTIM"}, Inside: []string{"1"}, Fails: "ENOENT", Program: `
for n in "mnt", "net", "pid", "user", "ipc": attempt(lambda: (os.open("/proc/%s/ns/%s" % (sys.argv[1], n), os.O_RDONLY), broke(n)))`,
		},
		{Name: "change the limits of a process of the same user", Args: []string{"$VICTIM"}, Fails: "ESRCH", Program: `
call("prlimit64", int(sys.argv[1]), 7, None, ctypes.create_string_buffer(16)); broke()`},
		{
			Name: "enter a namespace", Privileged: true, Fails: "EPERM", Program: `
for n in "uts", "net", "mnt": attempt(lambda: (call("setns", os.open("/proc/self/ns/" + n, os.O_RDONLY), 0), broke(n)))`,
		},
		{
			Name: "enter the namespaces of a process", Privileged: true, Inside: []string{"1"}, Args: []string{"self"}, Fails: "EPERM", Program: `
p = os.getpid() if sys.argv[1] == "self" else int(sys.argv[1])
call("setns", os.pidfd_open(p), NEWNS | NEWUTS); broke()`,
		},
		{
			Name: "find the launcher's variables in any process", Args: []string{"$VARIABLE"}, Fails: "ENOENT", Leans: "environment", Program: `
for p in os.listdir("/proc"):
    if p.isdigit(): attempt(lambda: sys.argv[1].encode() in open("/proc/%s/environ" % p, "rb").read() and broke(p))`,
		},
		{
			Name: "read a descriptor that the caller has left open", Args: []string{"$SECRET"}, Fails: "EBADF ESPIPE", Program: `
for fd in range(3, 40):
    attempt(lambda: b"THE-SECRET" in os.pread(fd, 99, 0) and broke(fd))`,
		},
		{Name: "attach shared memory of the host", Args: []string{"$KEY"}, Fails: "ENOENT", Leans: "ipc", Program: `call("shmget", int(sys.argv[1]), 4096, 0); broke()`},
		{Name: "use semaphores of the host", Args: []string{"$KEY"}, Fails: "ENOENT", Leans: "ipc", Program: `call("semget", int(sys.argv[1]), 1, 0); broke()`},
		{Name: "use a message queue of the host", Args: []string{"$KEY"}, Fails: "ENOENT", Leans: "ipc", Program: `call("msgget", int(sys.argv[1]), 0); broke()`},
		{Name: "use the keyrings", Fails: "EPERM", Leans: "filter", Program: `call("keyctl", 0, -3, 1); broke()`},
		{Name: "add a key", Fails: "EPERM", Leans: "filter", Program: `call("add_key", b"user", b"sandboxrun-test", b"x", 1, -1); broke()`},
		{Name: "ask for a key", Fails: "EPERM", Leans: "filter", Program: `
attempt(past, (errno.ENOKEY,), call, "request_key", b"user", b"sandboxrun-none", None, 0)`},
		{
			Name: "read the caller's keys", Args: []string{"$CALLERSKEY"}, Fails: "EPERM ENOKEY", Program: `
for ring in -3, -4, -5: # of the session, the user, the user's sessions
    attempt(lambda: broke(call("keyctl", 10, ring, b"user", sys.argv[1].encode(), 0)))`,
		},
		{Name: "make a user namespace", Granted: true, Fails: "EPERM", Leans: "filter", Program: `call("unshare", NEWUSER); broke()`},
		{Name: "clone into a user namespace", Granted: true, Fails: "EPERM", Leans: "filter", Program: `clone(NEWUSER); broke()`},
		{Name: "clone into a user namespace by clone3", Fails: "ENOSYS", Leans: "filter", Program: `
pid = call("clone3", struct.pack("QQQQQQQQ", NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0), 64)
if pid == 0: os._exit(0)
os.waitpid(pid, 0); broke()`},
		{Name: "make any other namespace", Own: true, Privileged: true, Fails: "EPERM", Program: `
for flag in NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWPID, NEWNET, NEWTIME: attempt(lambda: (call("unshare", flag), broke(hex(flag))))`},
		{Name: "clone into any other namespace", Own: true, Privileged: true, Fails: "EPERM", Program: `
for flag in NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWPID, NEWNET: attempt(lambda: (clone(flag), broke(hex(flag))))`},
		{Name: "change to another user", RootOnly: true, Fails: "EINVAL", Program: `os.setuid(4242); broke()`},
		{Name: "take another group", RootOnly: true, Fails: "EINVAL EPERM", Program: `
for f in lambda: os.setgid(4242), lambda: os.setgroups([4242]): attempt(lambda: (f(), broke()))`},
		{Name: "raise an ambient capability", Own: true, Privileged: true, Fails: "EPERM", Program: `
head, sets = struct.pack("Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
call("capget", head, sets)
n = list(struct.unpack("6I", sets)); n[2] = n[1]; n[5] = n[4]
call("capset", head, struct.pack("6I", *n)); call("prctl", 47, 2, 0, 0, 0); broke()`},
		{Name: "take every capability", Own: true, Privileged: true, Fails: "EPERM", Program: `
call("capset", struct.pack("Ii", 0x20080522, 0), struct.pack("6I", 0x1fffff, 0x1fffff, 0, 0, 0, 0)); broke()`},
		{Name: "become what a setuid program is", UserOnly: true, Fails: "", Program: setuidProgram},
		{Name: "become whom a setuid program belongs to", RootOnly: true, Args: []string{"$WORK/setuid"}, Fails: "", Program: `
out = os.popen(sys.argv[1] + " -u").read(); out.strip() == "4242" and broke(out)`},
		{Name: "raise a limit", RootOnly: true, Fails: "EPERM", Program: `
import resource
s, h = resource.getrlimit(resource.RLIMIT_RTPRIO); attempt(lambda: (resource.setrlimit(resource.RLIMIT_RTPRIO, (s, h + 1)), broke()))
try: resource.setrlimit(resource.RLIMIT_RTPRIO, (s, h + 1)); broke()
except ValueError: met_error(errno.EPERM)`},
		{Name: "run before everybody else", RootOnly: true, Fails: "EACCES EPERM", Program: `
attempt(lambda: (os.setpriority(os.PRIO_PROCESS, 0, -5), broke()))
attempt(lambda: (os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)), broke()))`},
		{Name: "be the last that the kernel kills for memory", RootOnly: true, Fails: "EACCES", Program: `
f = os.open("/proc/self/oom_score_adj", os.O_WRONLY); os.write(f, b"-999"); broke()`},
		{Name: "switch address randomisation off", Fails: "EPERM", Leans: "filter", Program: `call("personality", 0x40000); broke()`},
	}
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
