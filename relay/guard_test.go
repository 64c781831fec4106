package relay

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/relay/tlsname/tlstest"
)

// tunnels starts a relay whose world has a server at api.example.test:443, and gives ways to get there.
func tunnels(t *testing.T, server func(c *net.TCPConn)) (w *world, ways map[string]func(t *testing.T) *net.TCPConn) {
	t.Helper()
	w = &world{names: map[string][]string{"api.example.test": {"93.184.216.34"}}, servers: map[string]string{"93.184.216.34:443": tcpServer(t, server)}}
	policy := netpolicy.Policy{Mode: netpolicy.Allowlist, AllowedHosts: []string{"api.example.test", "93.184.216.34", "other.example.test"}}
	addr := w.start(t, policy, Listener{Kind: Proxy, Port: 3128})[0]
	return w, map[string]func(t *testing.T) *net.TCPConn{
		"CONNECT": func(t *testing.T) *net.TCPConn {
			t.Helper()
			c := dial(t, addr)
			send(t, c, "CONNECT API.example.test:443 HTTP/1.1\r\nHost: api.example.test:443\r\n\r\n")
			expect(t, c, "HTTP/1.1 200 Connection established\r\n\r\n")
			return c
		},
		"SOCKS": func(t *testing.T) *net.TCPConn {
			t.Helper()
			c := dial(t, addr)
			send(t, c, "\x05\x01\x00\x05\x01\x00\x03\x10api.example.test\x01\xbb")
			expect(t, c, "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
			return c
		},
		"address": func(t *testing.T) *net.TCPConn {
			t.Helper()
			c := dial(t, addr)
			send(t, c, "CONNECT 93.184.216.34:443 HTTP/1.1\r\n\r\n")
			expect(t, c, "HTTP/1.1 200 Connection established\r\n\r\n")
			return c
		},
	}
}

func TestTunnelServerName(t *testing.T) {
	good, other, evil := tlstest.ClientHello(t, "api.example.test"), tlstest.ClientHello(t, "other.example.test"), tlstest.ClientHello(t, "evil.example.test")
	heard := make(chan string, 1)
	w, ways := tunnels(t, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		heard <- string(b)
	})
	n := 0
	for _, test := range []struct {
		way    string
		bytes  []byte
		passes bool
	}{
		{"CONNECT", good, true},
		{"CONNECT", tlstest.Records(good, 9), true},
		{"CONNECT", tlstest.ClientHello(t, ""), true},
		{"CONNECT", tlstest.HandMade(tlstest.SNIType, tlstest.SNIBody("API.EXAMPLE.TEST")), true},
		{"CONNECT", good[:50], true}, // it ended there
		{"CONNECT", []byte("\x16"), true},
		{"CONNECT", []byte("plain"), true},
		{"CONNECT", other, false}, // allowed, but not what was asked for
		{"CONNECT", evil, false},
		{"CONNECT", tlstest.Records(evil, 1), false},
		{"CONNECT", append([]byte{21, 3, 1, 0, 2, 1, 0}, evil...), false},
		{"CONNECT", append([]byte{22, 10}, evil[2:]...), false},
		{"CONNECT", tlstest.HandMade(tlstest.SNIType, tlstest.SNIBody("api.example.test\x00.evil.test")), false},
		{"SOCKS", good, true},
		{"SOCKS", evil, false},
		{"address", tlstest.ClientHello(t, ""), true},
		{"address", good, true},
		{"address", evil, false},
	} {
		c := ways[test.way](t)
		var failed error
		for rest := test.bytes; len(rest) > 0; { // in segments, of which some hold half a header
			k := min(len(rest), max(3, len(test.bytes)/4))
			if _, failed = c.Write(rest[:k]); failed != nil {
				break
			}
			rest = rest[k:]
			time.Sleep(2 * time.Millisecond)
		}
		_ = c.CloseWrite()
		_, err := io.ReadAll(c)
		got, want := <-heard, string(test.bytes)
		if !test.passes {
			want = ""
		}
		if got != want || test.passes != (err == nil && failed == nil) {
			t.Errorf("%s %.20x...: the server heard %d bytes of %d, the client %v", test.way, test.bytes, len(got), len(test.bytes), err)
		}
		ev := w.event(t, n)
		n++
		if test.passes && ev.Verdict != Allowed || !test.passes && (ev.Verdict != Refused || !strings.Contains(ev.Reason, "server name")) {
			t.Errorf("%s %.20x...: %+v", test.way, test.bytes, ev)
		}
	}
}

// A server that speaks first is heard, though the client has said nothing, or not enough.
func TestTunnelServerFirst(t *testing.T) {
	_, ways := tunnels(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "SSH-2.0-test\r\n")
		_, _ = io.Copy(c, c)
	})
	for _, way := range []string{"CONNECT", "SOCKS"} {
		c := ways[way](t)
		expect(t, c, "SSH-2.0-test\r\n")
		send(t, c, "abc")
		expect(t, c, "abc")
		check(t, c.CloseWrite())
		expectEnd(t, c)
		c = ways[way](t)
		send(t, c, "\x16\x03\x01")
		expect(t, c, "SSH-2.0-test\r\n")
	}
}
