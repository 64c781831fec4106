package integration

import (
	_ "embed"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandboxrun/sandboxrun/container/doctor/escapes"
)

//go:embed testdata/escape_relay.py
var relayProgram string

// TestEscapesThroughTheRelay: the relay lets no program reach a host that is not allowed, by no protocol and
// in no spelling, above all not to the host's own loopback. The control is a sandbox that grants it.
func TestEscapesThroughTheRelay(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		var hits atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
			hits.Add(1)
			fmt.Fprintln(out, "HELLO")
		}))
		t.Cleanup(server.Close)
		at, err := url.Parse(server.URL)
		b.mustDo(err)
		udp, echo, err := escapes.EchoDatagrams()
		b.mustDo(err)
		t.Cleanup(func() { _ = echo.Close() })
		addresses, err := escapes.Addresses()
		b.mustDo(err)
		args := []string{"--", "python3", "-c", relayProgram, at.Port(), udp, addresses}
		local := []string{"127.0.0.1", "localhost"}
		granting := b.policy(object{"network": object{
			"mode": "allowlist", "allowed_hosts": []string{"127.0.0.1:" + at.Port(), "localhost:" + at.Port()}, "allow_private": local,
		}})
		control := b.run(append([]string{"run", "-p", granting}, args...)...).exits(0)
		control.prints("HELLO connect 127.0.0.1\n", "HELLO get 127.0.0.1\n", "HELLO socks5 127.0.0.1\n",
			"HELLO connect localhost\n", "HELLO socks5 localhost\n", "HELLO connect 127.1\n") // SOCKS4 it does not speak
		for _, mode := range []object{
			{"mode": "allowlist", "allowed_hosts": []string{"allowed.test", "*.wild.test", "127.0.0.1:1"}}, {"mode": "public"},
		} {
			hits.Store(0)
			a := b.run(append([]string{"run", "-p", b.policy(object{"network": mode})}, args...)...).exits(0).hides("HELLO", "BROKE")
			a.prints("tried connect 127.0.0.1 403", "tried socks5 127.0.0.1 2")
			if mode["mode"] == "allowlist" {
				a.prints("NAME allowed.test\n").hides("NAME c2VjcmV0")
			}
			same(t, "requests that came through", 0, hits.Load())
			if n := strings.Count(a.stdout, "tried "); n < 100 {
				t.Errorf("only %d ways were tried: %v", n, a)
			}
		}
	})
}
