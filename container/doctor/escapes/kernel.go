package escapes

// kernelAttacks want what a machine has only one of, and the mounts and rarely used calls that lead there.
func kernelAttacks() []Attack { //nolint:funlen // a table
	return []Attack{
		{Name: "mount", Own: true, Privileged: true, Fails: "EPERM", Program: `mount("none", "/tmp", "tmpfs"); broke()`},
		{Name: "mount by the new system calls", Privileged: true, Fails: "EPERM", Program: `call("fsopen", b"tmpfs", 0); broke()`},
		{Name: "pick a mount", Privileged: true, Fails: "EPERM", Program: `
attempt(mount, "none", "/tmp", "tmpfs"); call("fspick", HERE, b"/tmp", 0); broke()`},
		{Name: "clone a mount tree", Privileged: true, Fails: "EPERM", Program: `call("open_tree", HERE, b"/", 0x8001); broke()`},
		{Name: "bind", Own: true, Privileged: true, Fails: "EPERM", Program: `mount("/usr", "/tmp", None, 4096); broke()`},
		{Name: "move a mount", Privileged: true, Fails: "EPERM", Program: `
tree = attempt(call, "open_tree", HERE, b"/usr", 1)
if tree is None: tree = os.open("/usr", os.O_PATH)
call("move_mount", tree, b"", HERE, b"/tmp", 4); broke()`},
		{Name: "unmount", Own: true, Privileged: true, Fails: "EPERM", Program: `
attempt(mount, "none", "/tmp", "tmpfs")
for p in b"/tmp", b"/proc", b"/usr", b"/dev/shm": attempt(lambda: (call("umount2", p, 2), broke(p)))`},
		{
			Name: "take a mask off", Privileged: true, Args: []string{"/tmp"}, Inside: []string{"$DENIED"}, Fails: "EPERM", Program: `
attempt(mount, "none", "/tmp", "tmpfs"); call("umount2", sys.argv[1].encode(), 2); broke()`,
		},
		{
			Name: "remount", Privileged: true, Args: []string{"/tmp"}, Inside: []string{"$READONLY"}, Fails: "EPERM", Program: `
attempt(mount, "/tmp", "/tmp", None, 4096)
mount(None, sys.argv[1], None, 32 | 4096); broke()`,
		},
		{
			Name: "make a mount writable", Privileged: true, Args: []string{"/tmp"}, Inside: []string{"$READONLY"}, Fails: "EPERM", Program: `
attempt(mount, "/tmp", "/tmp", None, 4096)
call("mount_setattr", HERE, sys.argv[1].encode(), 0, struct.pack("QQQQ", 0, 1, 0, 0), 32); broke()`,
		},
		{Name: "change the root", Own: true, Privileged: true, Fails: "EPERM", Program: `os.chroot("/usr"); broke()`},
		{
			Name: "climb out of a root in the root", Privileged: true, Args: []string{"$SECRET"}, Fails: "EPERM", Program: `
os.chdir("/"); os.chroot("/usr")
contents("../" * 40 + sys.argv[1][1:])`,
		},
		{Name: "exchange the root", Own: true, Privileged: true, Fails: "EPERM", Program: `
attempt(mount, "none", "/tmp", "tmpfs"); attempt(os.mkdir, "/tmp/old"); call("pivot_root", b"/tmp", b"/tmp/old"); broke()`},
		{Name: "set the host name", Own: true, Privileged: true, Fails: "EPERM", Program: `
n = socket.gethostname().encode(); call("sethostname", n, len(n)); broke()`},
		{Name: "set the domain name", Privileged: true, Fails: "EPERM", Program: `call("setdomainname", b"(none)", 6); broke()`},
		{Name: "set the clock", RootOnly: true, Fails: "EPERM", Program: `
t = ctypes.create_string_buffer(256); call("adjtimex", t)
now = bytearray(t.raw); now[0:4] = struct.pack("I", 0x4000) # ADJ_TICK: to what it is
call("adjtimex", bytes(now)); broke()`},
		{Name: "load a kernel module", RootOnly: true, Fails: "EPERM", Program: `
attempt(past, (errno.ENOEXEC, errno.EFAULT), call, "init_module", b"x", 1, b"")`},
		{Name: "load another kernel", RootOnly: true, Fails: "EPERM", Program: `attempt(past, (errno.EINVAL,), call, "kexec_load", 0, 0, None, 1 << 30)`},
		{Name: "reboot", RootOnly: true, Fails: "EPERM", Program: `attempt(past, (errno.EINVAL,), call, "reboot", 1, 2, 3, None)`},
		{Name: "swap", RootOnly: true, Fails: "EPERM", Program: `
for name in "swapon", "swapoff": attempt(past, (errno.ENOENT,), call, name, b"/nonexistent", 0)`},
		{Name: "keep accounts of processes", RootOnly: true, Fails: "EPERM", Program: `attempt(past, (errno.ENOENT,), call, "acct", b"/nonexistent")`},
		{Name: "read the kernel's log", RootOnly: true, Fails: "EPERM", Program: `call("syslog", 10, None, 0); broke()`},
		{Name: "write the kernel's log", RootOnly: true, Fails: "ENOENT", Program: `os.open("/dev/kmsg", os.O_WRONLY); broke()`},
		{Name: "open sysrq-trigger", RootOnly: true, Fails: "EACCES EROFS ENOENT", Leans: "program id and proc read-only", Program: `os.open("/proc/sysrq-trigger", os.O_WRONLY); broke()`},
		{Name: "open core_pattern", RootOnly: true, Fails: "EACCES EROFS ENOENT", Leans: "program id and proc read-only", Program: `os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY); broke()`},
		{Name: "name the program that loads modules", RootOnly: true, Fails: "EACCES EROFS ENOENT", Leans: "program id and proc read-only", Program: `os.open("/proc/sys/kernel/modprobe", os.O_WRONLY); broke()`},
		{Name: "register an interpreter", RootOnly: true, Privileged: true, Fails: "EPERM ENOENT EROFS", Program: `
attempt(mount, "none", "/tmp", "binfmt_misc")
for d in "/tmp", "/proc/sys/fs/binfmt_misc": attempt(lambda: (os.open(d + "/register", os.O_WRONLY), broke()))`},
		{Name: "leave its control group", RootOnly: true, Fails: "ENOENT", Program: `
for d, _, files in os.walk("/sys/fs/cgroup", onerror=lambda e: met_error(e.errno)):
    for f in files:
        if f in ("cgroup.procs", "tasks"): os.open(os.path.join(d, f), os.O_WRONLY); broke(d); raise OSError(0, "")`},
		{
			Name: "open any setting of the kernel", RootOnly: true, Fails: "EACCES ENOENT EPERM EROFS", Leans: "program id and read-only,program id and proc read-only", Program: `
for top in "/proc/sys", "/sys":
    for d, _, files in os.walk(top):
        for f in files[:40]:
            p = os.path.join(d, f)
            attempt(lambda: not told and os.lstat(p).st_mode & 0o222 and (os.close(os.open(p, os.O_WRONLY | os.O_NONBLOCK)), broke(p)))
        if len(d) > 60: break`,
		},
		{Name: "read the kernel's addresses", RootOnly: true, Fails: "none ENOENT", Leans: "proc masks", Program: `
for p in "/proc/kallsyms", "/proc/kpageflags", "/proc/slabinfo", "/proc/vmallocinfo": attempt(lambda: os.read(os.open(p, os.O_RDONLY), 8) and broke(p))`},
		{Name: "use io_uring", Fails: "EPERM", Leans: "filter", Program: `call("io_uring_setup", 1, ctypes.create_string_buffer(256)); broke()`},
		{Name: "stop the kernel in a copy", Fails: "EPERM", Leans: "filter", Program: `call("userfaultfd", 1); broke()`},
		{Name: "load a program into the kernel", RootOnly: true, Fails: "EPERM", Program: `
call("bpf", 0, struct.pack("IIII", 2, 4, 4, 1) + bytes(112), 128); broke()`},
		{Name: "watch the processor's counters", RootOnly: true, Fails: "EPERM", Program: `
call("perf_event_open", struct.pack("IIQQQQQ", 1, 120, 0, 0, 0, 0, 0) + bytes(72), 0, -1, -1, 0); broke()`},
	}
}
