package escapes

// hostAttacks act on the host, or learn what it does, through files that are only readable and through what all of the machine
// shares. No namespace stands before any of that: the filter does.
func hostAttacks() []Attack {
	return []Attack{
		{Name: "stop the host at a file that can be read", Args: []string{"$READONLY"}, Fails: "EINVAL", Leans: "filter", Program: `
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open(sys.argv[1], os.O_RDONLY)
for kind in fcntl.F_WRLCK, fcntl.F_RDLCK: attempt(lambda: (fcntl.fcntl(fd, fcntl.F_SETLEASE, kind), broke()))`},
		{Name: "be notified of reads in a directory", Fails: "EINVAL", Leans: "filter", Program: `
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(os.open("/usr/bin", os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_ACCESS); broke()`},
		{Name: "watch which programs are executed", Fails: "ENOSPC", Leans: "filter", Program: `
fd = call("inotify_init1", 0)
for mask in 0x20, 0x1, 0x10, 0xfff, 0x80000021: attempt(lambda: (call("inotify_add_watch", fd, b"/usr/bin", mask), broke(hex(mask))))`},
		{Name: "look which files are cached", Fails: "ENOTSUP EOPNOTSUPP", Leans: "filter", Program: `
fd = os.open(os.path.realpath(sys.executable), os.O_RDONLY)
os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT); broke()`},
		{Name: "take the machine's asynchronous requests", Fails: "ENOSYS", Leans: "filter", Program: `
c = ctypes.c_ulong(0); call("io_setup", 64, ctypes.byref(c)); broke()`},
		{Name: "make a file of huge pages", Fails: "EINVAL", Leans: "filter", Program: `os.memfd_create("x", 4); broke()`},
		{Name: "have the core handler run", Fails: "EPERM none", Leans: "filter", Program: `
import resource
attempt(resource.setrlimit, resource.RLIMIT_CORE, (0, 0))
attempt(resource.prlimit, 0, resource.RLIMIT_CORE, (0, 0))
attempt(resource.prlimit, os.getpid(), resource.RLIMIT_CORE, (0, 0))
call("prlimit64", 0, 4 | 1 << 32, struct.pack("QQ", 0, 0), None)
resource.getrlimit(resource.RLIMIT_CORE)[0] == 0 and broke()`},
		{Name: "change a terminal's line discipline", Fails: "EPERM", Leans: "filter", Program: `
fcntl.ioctl(os.openpty()[1], 0x5423, struct.pack("i", 0)); broke()`},
		{Name: "speak another protocol than TCP and UDP", Fails: "EPROTONOSUPPORT ESOCKTNOSUPPORT", Leans: "filter", Program: `
for family in 2, 10:
    for kind, protocol in (1, 262), (5, 0), (5, 132), (1, 132), (6, 33), (2, 136), (2, 115), (1, 256):
        attempt(lambda: (socket.socket(family, kind, protocol), broke(family, kind, protocol)))`},
		{Name: "speak to another part of the kernel than its routes", Fails: "EPROTONOSUPPORT", Leans: "filter", Program: `
for protocol in range(1, 32): attempt(lambda: (socket.socket(16, 3, protocol), broke(protocol)))`},
	}
}
