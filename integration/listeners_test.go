package integration

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// squat tries to listen where the relay does: on the same address, on all, and on others of the loopback that connections to
// the relay could be taken for.
const squat = `
import socket, sys
def options(s, on):
    for o in on: s.setsockopt(socket.SOL_SOCKET, o, 1)
for kind, port, homes in (
        (socket.SOCK_STREAM, 8000, ("127.0.0.1", "0.0.0.0", "::", "::1", "::ffff:127.0.0.1", "::ffff:0.0.0.0")),
        (socket.SOCK_STREAM, 3128, ("127.0.0.1", "0.0.0.0", "::", "::ffff:127.0.0.1")),
        (socket.SOCK_STREAM, 9999, ("127.0.0.1", "127.77.0.1", "0.0.0.0", "::", "::ffff:127.77.0.1")),
        (socket.SOCK_DGRAM, 53, ("127.0.0.53", "0.0.0.0", "::", "::ffff:127.0.0.53")),
        (socket.SOCK_STREAM, 53, ("127.0.0.53", "0.0.0.0", "::"))):
    for at in homes:
        for on in (), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            s = socket.socket(socket.AF_INET6 if ":" in at else socket.AF_INET, kind)
            if ":" in at: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            try:
                options(s, on); s.bind((at, port))
                if kind == socket.SOCK_STREAM: s.listen(9)
                print("BROKE", at, port, on)
            except OSError as e: print("tried", at, port, e.errno)
            s.close()`

// TestListenersAreTheRelays: no exec of a sandbox can listen where others expect the relay.
func TestListenersAreTheRelays(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { fmt.Fprintln(out, "HELLO") }))
		t.Cleanup(server.Close)
		at, err := url.Parse(server.URL)
		b.mustDo(err)
		b.create("box", b.policy(object{"network": object{
			"mode": "allowlist", "allowed_hosts": []string{"allowed.test:9999", "allowed.test:8001"},
			"ports": []string{"8000=127.0.0.1:" + at.Port(), "8001=127.0.0.1:" + at.Port()},
		}}))
		a := b.exec("box", "--", "python3", "-c", squat).exits(0).hides("BROKE")
		if n := strings.Count(a.stdout, "tried "); n != 88 {
			t.Errorf("%d ways were tried: %v", n, a)
		}
		// The control: the ports are open, also one that forwards and leads to an allowed host.
		for _, port := range []string{"8000", "8001"} {
			get := "import urllib.request as u; print(u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:" + port + "/', timeout=9).read())"
			b.exec("box", "--", "python3", "-c", get).exits(0).prints("HELLO")
		}
		listen, err := net.Listen("tcp", "127.0.0.1:0") // the same program finds nobody in the way elsewhere
		b.mustDo(err)
		_, free, _ := net.SplitHostPort(listen.Addr().String())
		b.mustDo(listen.Close())
		b.exec("box", "--", "python3", "-c", strings.ReplaceAll(squat, "8000", free)).exits(0).prints("BROKE 127.0.0.1 " + free)
	})
}
