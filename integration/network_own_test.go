package integration

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// TestOwnNetwork: in a network of its own a program listens on low ports, pings itself, and resolves names with AI_ADDRCONFIG. The
// host's network is as it was, and no further away or nearer than before.
func TestOwnNetwork(t *testing.T) {
	settings := func() string {
		var all strings.Builder
		for _, name := range []string{"ip_unprivileged_port_start", "ping_group_range"} {
			data, _ := os.ReadFile("/proc/sys/net/ipv4/" + name)
			all.Write(data)
		}
		addrs, _ := net.InterfaceAddrs()
		return all.String() + fmt.Sprint(addrs)
	}
	flavours(t, func(b *box) {
		t := b.t
		before := settings()
		const program = `
import socket, struct
def listen(family, addr, port):
    s = socket.socket(family); s.bind((addr, port)); s.listen()
    c = socket.create_connection((addr if addr != "::" else "::1", port), 5); c.close()
def ping(family, proto, kind, addr):
    s = socket.socket(family, socket.SOCK_DGRAM, proto); s.settimeout(5)
    s.sendto(struct.pack("!BBHHH", kind, 0, 0, 0, 1) + b"x" * 8, (addr, 0)); assert s.recv(99)
def resolve(family): return sorted({a[4][0] for a in socket.getaddrinfo("localhost", 80, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)})
def say(what, f):
    try: print(what, f() or "ok")
    except OSError as e: print(what, "errno", e.errno)
say("port 8080", lambda: listen(socket.AF_INET, "127.0.0.1", 8080))
say("port 80", lambda: listen(socket.AF_INET, "127.0.0.1", 80))
say("port 443", lambda: listen(socket.AF_INET6, "::", 443))
say("ping", lambda: ping(socket.AF_INET, socket.IPPROTO_ICMP, 8, "127.0.0.1"))
say("ping6", lambda: ping(socket.AF_INET6, socket.IPPROTO_ICMPV6, 128, "::1"))
say("v4", lambda: resolve(socket.AF_INET))
say("v6", lambda: resolve(socket.AF_INET6))
`
		a := b.python(b.files("", object{}), program).exits(0)
		a.prints("port 8080 ok", "port 80 ok", "ping ok", "v4 ['127.0.0.1']")
		if c, err := net.Listen("tcp", "[::1]:0"); err == nil {
			_ = c.Close()
			a.prints("port 443 ok", "ping6 ok", "v6 ['::1']")
		}
		// Where the relay listens on one of the low ports a program may have none: it could listen beside the relay.
		b.python(b.policy(object{"network": object{"mode": "allowlist", "allowed_hosts": []string{"example.org"}}}), program).exits(0).
			prints("port 8080 ok", "port 80 errno 13", "ping ok", "v4 ['127.0.0.1']")
		same(t, "the host's settings", before, settings())
	})
}

// TestForwardToIPv6: a server that listens on ::1 alone is reached by a forward of its port.
func TestForwardToIPv6(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ln, err := net.Listen("tcp", "[::1]:0")
		if err != nil {
			need(t, "IPv6", false)
		}
		defer ln.Close() //nolint:errcheck // a listener
		go func() {
			for c, err := ln.Accept(); err == nil; c, err = ln.Accept() {
				_, _ = c.Write([]byte("six"))
				_ = c.Close()
			}
		}()
		port := ln.Addr().(*net.TCPAddr).Port
		p := b.policy(object{"network": object{"ports": []int{port}}})
		for _, host := range []string{"127.0.0.1", "::1", "localhost"} {
			b.python(p, "import socket, sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).recv(9))", host, fmt.Sprint(port)).
				exits(0).prints("six")
		}
	})
}
