package integration

// kernelAttacks want what a machine has only one of, and the mounts and rarely used calls that lead there.
var kernelAttacks = []attack{
	{name: "mount", privileged: true, fails: "EPERM", program: `mount("none", "/tmp", "tmpfs"); broke()`},
	{name: "mount by the new system calls", privileged: true, fails: "EPERM", program: `call("fsopen", b"tmpfs", 0); broke()`},
	{name: "pick a mount", privileged: true, fails: "EPERM", program: `
attempt(mount, "none", "/tmp", "tmpfs"); call("fspick", HERE, b"/tmp", 0); broke()`},
	{name: "clone a mount tree", privileged: true, fails: "EPERM", program: `call("open_tree", HERE, b"/", 0x8001); broke()`},
	{name: "bind", privileged: true, fails: "EPERM", program: `mount("/usr", "/tmp", None, 4096); broke()`},
	{name: "move a mount", privileged: true, fails: "EPERM", program: `
tree = attempt(call, "open_tree", HERE, b"/usr", 1)
if tree is None: tree = os.open("/usr", os.O_PATH)
call("move_mount", tree, b"", HERE, b"/tmp", 4); broke()`},
	{name: "unmount", privileged: true, fails: "EPERM", program: `
attempt(mount, "none", "/tmp", "tmpfs")
for p in b"/tmp", b"/proc", b"/usr", b"/dev/shm": attempt(lambda: (call("umount2", p, 2), broke(p)))`},
	{
		name: "take a mask off", privileged: true, args: []string{"/tmp"}, inside: []string{"$DENIED"}, fails: "EPERM", program: `
attempt(mount, "none", "/tmp", "tmpfs"); call("umount2", sys.argv[1].encode(), 2); broke()`,
	},
	{
		name: "remount", privileged: true, args: []string{"/tmp"}, inside: []string{"$READONLY"}, fails: "EPERM", program: `
attempt(mount, "/tmp", "/tmp", None, 4096)
mount(None, sys.argv[1], None, 32 | 4096); broke()`,
	},
	{
		name: "make a mount writable", privileged: true, args: []string{"/tmp"}, inside: []string{"$READONLY"}, fails: "EPERM", program: `
attempt(mount, "/tmp", "/tmp", None, 4096)
call("mount_setattr", HERE, sys.argv[1].encode(), 0, struct.pack("QQQQ", 0, 1, 0, 0), 32); broke()`,
	},
	{name: "change the root", privileged: true, fails: "EPERM", program: `os.chroot("/usr"); broke()`},
	{
		name: "climb out of a root in the root", privileged: true, args: []string{"$SECRET"}, fails: "EPERM", program: `
os.chdir("/"); os.chroot("/usr")
contents("../" * 40 + sys.argv[1][1:])`,
	},
	{name: "exchange the root", privileged: true, fails: "EPERM", program: `
attempt(mount, "none", "/tmp", "tmpfs"); attempt(os.mkdir, "/tmp/old"); call("pivot_root", b"/tmp", b"/tmp/old"); broke()`},
	{name: "set the host name", privileged: true, fails: "EPERM", program: `
n = socket.gethostname().encode(); call("sethostname", n, len(n)); broke()`},
	{name: "set the domain name", privileged: true, fails: "EPERM", program: `call("setdomainname", b"(none)", 6); broke()`},
	{name: "set the clock", rootOnly: true, fails: "EPERM", program: `
t = ctypes.create_string_buffer(256); call("adjtimex", t)
now = bytearray(t.raw); now[0:4] = struct.pack("I", 0x4000) # ADJ_TICK: to what it is
call("adjtimex", bytes(now)); broke()`},
	{name: "load a kernel module", rootOnly: true, fails: "EPERM", program: `
attempt(past, (errno.ENOEXEC, errno.EFAULT), call, "init_module", b"x", 1, b"")`},
	{name: "load another kernel", rootOnly: true, fails: "EPERM", program: `attempt(past, (errno.EINVAL,), call, "kexec_load", 0, 0, None, 1 << 30)`},
	{name: "reboot", rootOnly: true, fails: "EPERM", program: `attempt(past, (errno.EINVAL,), call, "reboot", 1, 2, 3, None)`},
	{name: "swap", rootOnly: true, fails: "EPERM", program: `
for name in "swapon", "swapoff": attempt(past, (errno.ENOENT,), call, name, b"/nonexistent", 0)`},
	{name: "keep accounts of processes", rootOnly: true, fails: "EPERM", program: `attempt(past, (errno.ENOENT,), call, "acct", b"/nonexistent")`},
	{name: "read the kernel's log", rootOnly: true, fails: "EPERM", program: `call("syslog", 10, None, 0); broke()`},
	{name: "write the kernel's log", rootOnly: true, fails: "ENOENT", program: `os.open("/dev/kmsg", os.O_WRONLY); broke()`},
	{name: "open sysrq-trigger", rootOnly: true, fails: "EACCES EROFS ENOENT", leans: "program id and proc read-only", program: `os.open("/proc/sysrq-trigger", os.O_WRONLY); broke()`},
	{name: "open core_pattern", rootOnly: true, fails: "EACCES EROFS ENOENT", leans: "program id and proc read-only", program: `os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY); broke()`},
	{name: "name the program that loads modules", rootOnly: true, fails: "EACCES EROFS ENOENT", leans: "program id and proc read-only", program: `os.open("/proc/sys/kernel/modprobe", os.O_WRONLY); broke()`},
	{name: "register an interpreter", rootOnly: true, privileged: true, fails: "EPERM ENOENT EROFS", program: `
attempt(mount, "none", "/tmp", "binfmt_misc")
for d in "/tmp", "/proc/sys/fs/binfmt_misc": attempt(lambda: (os.open(d + "/register", os.O_WRONLY), broke()))`},
	{name: "leave its control group", rootOnly: true, fails: "ENOENT", program: `
for d, _, files in os.walk("/sys/fs/cgroup", onerror=lambda e: met_error(e.errno)):
    for f in files:
        if f in ("cgroup.procs", "tasks"): os.open(os.path.join(d, f), os.O_WRONLY); broke(d); raise OSError(0, "")`},
	{
		name: "open any setting of the kernel", rootOnly: true, fails: "EACCES ENOENT EPERM EROFS", leans: "program id and read-only,program id and proc read-only", program: `
for top in "/proc/sys", "/sys":
    for d, _, files in os.walk(top):
        for f in files[:40]:
            p = os.path.join(d, f)
            attempt(lambda: not told and os.lstat(p).st_mode & 0o222 and (os.close(os.open(p, os.O_WRONLY | os.O_NONBLOCK)), broke(p)))
        if len(d) > 60: break`,
	},
	{name: "read the kernel's addresses", rootOnly: true, fails: "none ENOENT", leans: "proc masks", program: `
for p in "/proc/kallsyms", "/proc/kpageflags", "/proc/slabinfo", "/proc/vmallocinfo": attempt(lambda: os.read(os.open(p, os.O_RDONLY), 8) and broke(p))`},
	{name: "use io_uring", fails: "EPERM", leans: "filter", program: `call("io_uring_setup", 1, ctypes.create_string_buffer(256)); broke()`},
	{name: "stop the kernel in a copy", fails: "EPERM", leans: "filter", program: `call("userfaultfd", 1); broke()`},
	{name: "load a program into the kernel", rootOnly: true, fails: "EPERM", program: `
call("bpf", 0, struct.pack("IIII", 2, 4, 4, 1) + bytes(112), 128); broke()`},
	{name: "watch the processor's counters", rootOnly: true, fails: "EPERM", program: `
call("perf_event_open", struct.pack("IIQQQQQ", 1, 120, 0, 0, 0, 0, 0) + bytes(72), 0, -1, -1, 0); broke()`},
}
