package integration

// networkAttacks want to talk to somebody outside, or to change how the sandbox is connected.
var networkAttacks = []attack{
	{
		name: "reach a port of the host's loopback", args: []string{"$PORT"}, fails: "ECONNREFUSED ENETUNREACH EADDRNOTAVAIL", leans: "network",
		program: `
for host in "127.0.0.1", "localhost", "127.0.0.2", "0.0.0.0", "::ffff:127.0.0.1":
    attempt(lambda: socket.create_connection((host, int(sys.argv[1])), 2).recv(99) and broke(host))`,
	},
	{
		name: "reach the host by its own addresses", args: []string{"$PORT", "$ADDRESSES"}, fails: "ECONNREFUSED ENETUNREACH", leans: "network",
		program: `
for host in sys.argv[2].split(","): attempt(lambda: socket.create_connection((host, int(sys.argv[1])), 2).recv(99) and broke(host))`,
	},
	{
		name: "send a datagram to the host", args: []string{"$UDP"}, fails: "ECONNREFUSED EAGAIN", leans: "network", program: `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.3); s.connect(("127.0.0.1", int(sys.argv[1])))
s.send(b"secret"); s.recv(9) and broke()`,
	},
	{
		name: "reach an abstract socket", args: []string{"$ABSTRACT"}, fails: "ECONNREFUSED", leans: "network",
		program: `s = socket.socket(socket.AF_UNIX); s.connect("\0" + sys.argv[1]); s.recv(99) and broke()`,
	},
	{
		name: "be handed a descriptor", args: []string{"$ABSTRACT-rights"}, fails: "ECONNREFUSED", leans: "network", program: `
s = socket.socket(socket.AF_UNIX); s.connect("\0" + sys.argv[1])
os.pread(socket.recv_fds(s, 9, 1)[1][0], 99, 0) == b"THE-SECRET" and broke()`,
	},
	{
		name: "find sockets of the host's in /proc", args: []string{"$ABSTRACT"}, fails: "", leans: "network",
		program: `sys.argv[1] in open("/proc/net/unix").read() and broke()`,
	},
	{
		name: "list the host's listening ports", args: []string{"$PORT"}, fails: "", leans: "network",
		program: `
for table in "tcp", "tcp6": ":%04X " % int(sys.argv[1]) in open("/proc/net/" + table).read() and broke()`,
	},
	{
		name: "reach a socket by a path that is not granted", args: []string{"$SOCKET"}, fails: "ENOENT",
		program: `s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(99) and broke()`,
	},
	{
		name: "reach it through a link", args: []string{"$WORK/socket"}, fails: "ENOENT",
		program: `s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(99) and broke()`,
	},
	{name: "take a network device down", privileged: true, fails: "EPERM", program: `
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14x", b"lo", 0x48)); broke()`},
	{name: "add an address", privileged: true, fails: "EPERM", program: `
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.settimeout(1)
m = struct.pack("BBBBI", socket.AF_INET, 32, 0, 0, 1) + struct.pack("HH4s", 8, 2, socket.inet_aton("192.0.2.7"))
s.send(struct.pack("IHHII", 16 + len(m), 20, 0x605, 1, 0) + m)
e = -struct.unpack_from("i", s.recv(4096), 16)[0]
met_error(e) if e else broke()`},
	{name: "bring a network device up by netlink", privileged: true, fails: "EPERM", program: `
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.settimeout(1)
m = struct.pack("BxHiII", 0, 0, 1, 1, 1)
s.send(struct.pack("IHHII", 16 + len(m), 16, 5, 1, 0) + m)
e = -struct.unpack_from("i", s.recv(4096), 16)[0]
met_error(e) if e else broke()`},
	{name: "open a packet socket", privileged: true, fails: "EAFNOSUPPORT", program: `socket.socket(17, 3, 3); broke()`},
	{name: "open a raw socket", privileged: true, fails: "EPERM", program: `socket.socket(2, 3, 1); broke()`},
	{name: "open a socket to the hypervisor", fails: "EAFNOSUPPORT", leans: "filter", program: `socket.socket(40, 1, 0); broke()`},
	{name: "open a socket to the kernel's ciphers", fails: "EAFNOSUPPORT", leans: "filter", program: `socket.socket(38, 5, 0); broke()`},
}
