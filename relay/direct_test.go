package relay

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/relay/pipe"
	"github.com/sandboxrun/sandboxrun/relay/tlsname/tlstest"
)

// directWorld starts dns and a direct listener, at whose real port every rule and server is.
func directWorld(t *testing.T, server func(c *net.TCPConn)) (w *world, connect func(host string) (net.Conn, error)) {
	t.Helper()
	up := tcpServer(t, server)
	w = &world{names: map[string][]string{"api.example.test": {"93.184.216.34"}, "priv.example.test": {"10.0.0.1"}}, servers: map[string]string{}}
	files, addrs := sockets(t, []Listener{{Kind: DNS}, {Kind: Direct}})
	p := port(addrs[1])
	w.servers["93.184.216.34:"+strconv.Itoa(p)] = up
	w.servers["10.0.0.1:"+strconv.Itoa(p)] = up
	w.servers[up] = up
	checkLeaks(t)
	cfg := Config{
		Policy: netpolicy.Policy{Mode: netpolicy.Allowlist, AllowedHosts: []string{"other.test:1", fmt.Sprintf("*.example.test:%d", p)}},
		Listeners: []Listener{{Kind: DNS, Port: 53}, {Kind: Direct, Port: p, At: map[netip.Addr]Listener{
			netip.MustParseAddr("127.0.0.3"): {Kind: Forward, Port: p, Target: up},
		}}},
		Dial: w.dial, Resolve: w.resolve,
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- Serve(ctx, cfg, files, w.note) }()
	t.Cleanup(func() { cancel(); check(t, <-done) })
	dns, err := net.Dial("udp", addrs[0])
	check(t, err)
	t.Cleanup(func() { pipe.Shut(dns) })
	return w, func(host string) (net.Conn, error) {
		if !strings.HasPrefix(host, "127.") {
			m := ask(t, dns, queryFor(t, host+".", dnsmessage.TypeA, false))
			body, _ := m.Answers[0].Body.(*dnsmessage.AResource)
			host = net.IP(body.A[:]).String()
		}
		c, err := net.Dial("tcp4", net.JoinHostPort(host, strconv.Itoa(p)))
		if err == nil {
			t.Cleanup(func() { pipe.Shut(c) })
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		}
		return c, err
	}
}

func TestDirect(t *testing.T) {
	w, connect := directWorld(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "220 hello\r\n")
		_, _ = io.Copy(c, c)
	})
	good, evil := tlstest.ClientHello(t, "api.example.test"), tlstest.ClientHello(t, "evil.test")
	for i, test := range []struct{ host, sent, verdict, reason string }{
		{"api.example.test", "abc", Allowed, ""},
		{"api.example.test", string(good), Allowed, ""},
		{"api.example.test", string(evil), Refused, `the TLS server name evil.test is not "api.example.test", the host that the connection was made for`},
		{"priv.example.test", "", Refused, netpolicy.ReasonPrivate},
		{"gone.example.test", "", Failed, "no such host"},
		{"other.test", "", Refused, netpolicy.ReasonWrongPort},
		{"127.0.0.3", "abc", Allowed, ""}, // a forward on the same port
		{"127.0.0.1", "", Refused, "no name has this address"},
		{"127.77.9.9", "", Refused, "no name has this address"},
	} {
		got := ""
		if c, err := connect(test.host); err == nil && test.sent != "" {
			expect(t, c, "220 hello\r\n")
			send(t, c, test.sent)
			b := make([]byte, len(test.sent))
			n, _ := io.ReadFull(c, b)
			got = string(b[:n])
			pipe.Shut(c)
		} else if err == nil {
			if b, err := io.ReadAll(c); err == nil || len(b) > 0 {
				t.Errorf("%s: %q, %v", test.host, b, err)
			}
		}
		if test.verdict == Allowed && got != test.sent || test.verdict != Allowed && got != "" {
			t.Errorf("%s: %q", test.host, got)
		}
		if ev := w.event(t, i); ev.Kind != "direct" && ev.Kind != "forward" || ev.Verdict != test.verdict || !strings.HasSuffix(ev.Reason, test.reason) || ev.Host == "" {
			t.Errorf("%s: %+v", test.host, ev)
		}
	}
	if dialed := w.list(&w.dialed); len(dialed) != 4 {
		t.Errorf("dialed %q", dialed)
	}
}
