package integration

// hostAttacks act on the host, or learn what it does, through files that are only readable and through what all of the machine
// shares. No namespace stands before any of that: the filter does.
var hostAttacks = []attack{
	{name: "stop the host at a file that can be read", args: []string{"$READONLY"}, fails: "EINVAL", leans: "filter", program: `
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open(sys.argv[1], os.O_RDONLY)
for kind in fcntl.F_WRLCK, fcntl.F_RDLCK: attempt(lambda: (fcntl.fcntl(fd, fcntl.F_SETLEASE, kind), broke()))`},
	{name: "be notified of reads in a directory", fails: "EINVAL", leans: "filter", program: `
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(os.open("/usr/bin", os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_ACCESS); broke()`},
	{name: "watch which programs are executed", fails: "ENOSPC", leans: "filter", program: `
fd = call("inotify_init1", 0)
for mask in 0x20, 0x1, 0x10, 0xfff, 0x80000021: attempt(lambda: (call("inotify_add_watch", fd, b"/usr/bin", mask), broke(hex(mask))))`},
	{name: "look which files are cached", fails: "ENOTSUP EOPNOTSUPP", leans: "filter", program: `
fd = os.open(os.path.realpath(sys.executable), os.O_RDONLY)
os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT); broke()`},
	{name: "take the machine's asynchronous requests", fails: "ENOSYS", leans: "filter", program: `
c = ctypes.c_ulong(0); call("io_setup", 64, ctypes.byref(c)); broke()`},
	{name: "make a file of huge pages", fails: "EINVAL", leans: "filter", program: `os.memfd_create("x", 4); broke()`},
	{name: "have the core handler run", fails: "EPERM none", leans: "filter", program: `
import resource
attempt(resource.setrlimit, resource.RLIMIT_CORE, (0, 0))
attempt(resource.prlimit, 0, resource.RLIMIT_CORE, (0, 0))
attempt(resource.prlimit, os.getpid(), resource.RLIMIT_CORE, (0, 0))
call("prlimit64", 0, 4 | 1 << 32, struct.pack("QQ", 0, 0), None)
resource.getrlimit(resource.RLIMIT_CORE)[0] == 0 and broke()`},
	{name: "change a terminal's line discipline", fails: "EPERM", leans: "filter", program: `
fcntl.ioctl(os.openpty()[1], 0x5423, struct.pack("i", 0)); broke()`},
	{name: "speak another protocol than TCP and UDP", fails: "EPROTONOSUPPORT ESOCKTNOSUPPORT", leans: "filter", program: `
for family in 2, 10:
    for kind, protocol in (1, 262), (5, 0), (5, 132), (1, 132), (6, 33), (2, 136), (2, 115), (1, 256):
        attempt(lambda: (socket.socket(family, kind, protocol), broke(family, kind, protocol)))`},
	{name: "speak to another part of the kernel than its routes", fails: "EPROTONOSUPPORT", leans: "filter", program: `
for protocol in range(1, 32): attempt(lambda: (socket.socket(16, 3, protocol), broke(protocol)))`},
}
