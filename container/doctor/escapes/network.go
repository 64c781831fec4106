package escapes

// networkAttacks want to talk to somebody outside, or to change how the sandbox is connected.
func networkAttacks() []Attack { //nolint:funlen // a table
	return []Attack{
		{
			Name: "reach a port of the host's loopback", Args: []string{"$PORT"}, Fails: "ECONNREFUSED ENETUNREACH EADDRNOTAVAIL", Leans: "network",
			Program: `
for host in "127.0.0.1", "localhost", "127.0.0.2", "0.0.0.0", "::ffff:127.0.0.1":
    attempt(lambda: socket.create_connection((host, int(sys.argv[1])), 2).recv(99) and broke(host))`,
		},
		{
			Name: "reach the host by its own addresses", Args: []string{"$PORT", "$ADDRESSES"}, Fails: "ECONNREFUSED ENETUNREACH", Leans: "network",
			Program: `
for host in sys.argv[2].split(","): attempt(lambda: socket.create_connection((host, int(sys.argv[1])), 2).recv(99) and broke(host))`,
		},
		{
			Name: "send a datagram to the host", Args: []string{"$UDP"}, Fails: "ECONNREFUSED EAGAIN", Leans: "network", Program: `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.3); s.connect(("127.0.0.1", int(sys.argv[1])))
s.send(b"secret"); s.recv(9) and broke()`,
		},
		{
			Name: "reach an abstract socket", Args: []string{"$ABSTRACT"}, Fails: "ECONNREFUSED", Leans: "network",
			Program: `s = socket.socket(socket.AF_UNIX); s.connect("\0" + sys.argv[1]); s.recv(99) and broke()`,
		},
		{
			Name: "be handed a descriptor", Args: []string{"$ABSTRACT-rights"}, Fails: "ECONNREFUSED", Leans: "network", Program: `
s = socket.socket(socket.AF_UNIX); s.connect("\0" + sys.argv[1])
os.pread(socket.recv_fds(s, 9, 1)[1][0], 99, 0) == b"THE-SECRET" and broke()`,
		},
		{
			Name: "find sockets of the host's in /proc", Args: []string{"$ABSTRACT"}, Fails: "", Leans: "network",
			Program: `sys.argv[1] in open("/proc/net/unix").read() and broke()`,
		},
		{
			Name: "list the host's listening ports", Args: []string{"$PORT"}, Fails: "", Leans: "network",
			Program: `
for table in "tcp", "tcp6": ":%04X " % int(sys.argv[1]) in open("/proc/net/" + table).read() and broke()`,
		},
		{
			Name: "reach a socket by a path that is not granted", Args: []string{"$SOCKET"}, Fails: "ENOENT",
			Program: `s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(99) and broke()`,
		},
		{
			Name: "reach it through a link", Args: []string{"$WORK/socket"}, Fails: "ENOENT",
			Program: `s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(99) and broke()`,
		},
		{Name: "take a network device down", Own: true, Privileged: true, Fails: "EPERM", Program: `
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14x", b"lo", 0x48)); broke()`},
		{Name: "add an address", Own: true, Privileged: true, Fails: "EPERM", Program: `
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.settimeout(1)
m = struct.pack("BBBBI", socket.AF_INET, 32, 0, 0, 1) + struct.pack("HH4s", 8, 2, socket.inet_aton("192.0.2.7"))
s.send(struct.pack("IHHII", 16 + len(m), 20, 0x605, 1, 0) + m)
e = -struct.unpack_from("i", s.recv(4096), 16)[0]
met_error(e) if e else broke()`},
		{Name: "bring a network device up by netlink", Own: true, Privileged: true, Fails: "EPERM", Program: `
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.settimeout(1)
m = struct.pack("BxHiII", 0, 0, 1, 1, 1)
s.send(struct.pack("IHHII", 16 + len(m), 16, 5, 1, 0) + m)
e = -struct.unpack_from("i", s.recv(4096), 16)[0]
met_error(e) if e else broke()`},
		{Name: "open a packet socket", Privileged: true, Fails: "EAFNOSUPPORT", Program: `socket.socket(17, 3, 3); broke()`},
		{Name: "open a raw socket", Privileged: true, Fails: "EPERM", Program: `socket.socket(2, 3, 1); broke()`},
		{Name: "open a socket to the hypervisor", Fails: "EAFNOSUPPORT", Leans: "filter", Program: `socket.socket(40, 1, 0); broke()`},
		{Name: "open a socket to the kernel's ciphers", Fails: "EAFNOSUPPORT", Leans: "filter", Program: `socket.socket(38, 5, 0); broke()`},
	}
}
