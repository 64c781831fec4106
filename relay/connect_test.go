package relay

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/relay/tlsname/tlstest"
)

// publicWorld has servers of all sorts of addresses; each would answer.
func publicWorld(t testing.TB) *world {
	t.Helper()
	up := tcpServer(t, func(c *net.TCPConn) {
		_, _ = bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "UP")
	})
	w := &world{names: map[string][]string{
		"api.example.test":  {"93.184.216.34"},
		"two.example.test":  {"93.184.216.35", "93.184.216.34"}, // nobody listens at the first
		"half.example.test": {"10.0.0.1", "93.184.216.34"},      // the first is private
		"priv.example.test": {"10.0.0.1"},
		"meta.example.test": {"169.254.169.254", "fd00:ec2::254"},
		"loop.example.test": {"127.0.0.1", "::1"},
		"own.example.test":  {"198.100.0.9"},
		"v4in6.test":        {"::ffff:127.0.0.1"},
		"dead.example.test": {"93.184.216.35"},
		"db.example.test":   {"10.0.0.1"},
	}, servers: map[string]string{}}
	for _, a := range []string{"93.184.216.34", "10.0.0.1", "169.254.169.254", "127.0.0.1", "198.100.0.9"} {
		for _, p := range []string{"443", "80", "8443", "22"} {
			w.servers[net.JoinHostPort(a, p)] = up
		}
	}
	return w
}

func publicPolicy() netpolicy.Policy {
	return netpolicy.Policy{
		Mode:         netpolicy.Allowlist,
		AllowedHosts: []string{"*.example.test", "v4in6.test", "gone.test", "10.0.0.1", "93.184.216.34", "api.example.test:8443"},
		AllowPrivate: []string{"db.example.test"},
	}
}

// asks are what a program can ask for, and what it is told.
func asks() []struct {
	host    string
	port    int
	status  int
	reply   byte
	verdict string
	reason  string
	dialed  string
} {
	type ask = struct {
		host    string
		port    int
		status  int
		reply   byte
		verdict string
		reason  string
		dialed  string
	}
	return []ask{
		{"api.example.test", 443, 200, socksGranted, Allowed, "", "93.184.216.34:443"},
		{"API.Example.TEST.", 80, 200, socksGranted, Allowed, "", "93.184.216.34:80"},
		{"api.example.test", 8443, 200, socksGranted, Allowed, "", "93.184.216.34:8443"},
		{"93.184.216.34", 443, 200, socksGranted, Allowed, "", "93.184.216.34:443"},
		{"db.example.test", 443, 200, socksGranted, Allowed, "", "10.0.0.1:443"},
		{"half.example.test", 443, 200, socksGranted, Allowed, "", "93.184.216.34:443"},
		{"two.example.test", 443, 200, socksGranted, Allowed, "", "93.184.216.35:443 93.184.216.34:443"},
		{"api.example.test", 22, 403, socksRefused, Refused, netpolicy.ReasonWrongPort, ""},
		{"example.test", 443, 403, socksRefused, Refused, netpolicy.ReasonNoRule, ""},
		{"api.example.test.evil.test", 443, 403, socksRefused, Refused, netpolicy.ReasonNoRule, ""},
		{"evil.test", 443, 403, socksRefused, Refused, netpolicy.ReasonNoRule, ""},
		{"localhost", 443, 403, socksRefused, Refused, netpolicy.ReasonNoRule, ""},
		{"127.0.0.1", 443, 403, socksRefused, Refused, netpolicy.ReasonNoRule, ""},
		{"169.254.169.254", 80, 403, socksRefused, Refused, netpolicy.ReasonNoRule, ""},
		{"10.0.0.1", 443, 403, socksRefused, Refused, netpolicy.ReasonPrivate, ""},
		{"priv.example.test", 443, 403, socksRefused, Refused, netpolicy.ReasonPrivate, ""},
		{"meta.example.test", 80, 403, socksRefused, Refused, netpolicy.ReasonPrivate, ""},
		{"loop.example.test", 443, 403, socksRefused, Refused, netpolicy.ReasonPrivate, ""},
		{"v4in6.test", 443, 403, socksRefused, Refused, netpolicy.ReasonPrivate, ""},
		{"own.example.test", 443, 403, socksRefused, Refused, netpolicy.ReasonOwn, ""},
		{"gone.test", 443, 502, socksNoRoute, Failed, "connect gone.test:443: no such host", ""},
		{"dead.example.test", 443, 502, socksNoServer, Failed, "connect dead.example.test:443: connection refused", "93.184.216.35:443"},
	}
}

func TestConnect(t *testing.T) {
	for _, a := range asks() {
		t.Run(fmt.Sprint(a.host, " ", a.port), func(t *testing.T) {
			w := publicWorld(t)
			addr := w.start(t, publicPolicy(), Listener{Kind: Proxy})[0]
			c := dial(t, addr)
			send(t, c, fmt.Sprintf("CONNECT %s:%d HTTP/1.1\r\nHost: x\r\nProxy-Connection: keep-alive\r\n\r\n", a.host, a.port))
			r := bufio.NewReader(c)
			resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
			check(t, err)
			if resp.StatusCode != a.status {
				t.Errorf("status %d, want %d", resp.StatusCode, a.status)
			}
			defer func() { _ = resp.Body.Close() }()
			if a.status == 200 {
				send(t, c, "hello\n")
				expect(t, r, "UP")
				expectEnd(t, r)
			} else if body, err := io.ReadAll(r); err != nil || !strings.Contains(string(body), strings.Trim(strings.ToLower(a.host), ".")) {
				t.Errorf("body %q, %v", body, err)
			}
			check(t, c.Close())
			w.expect(t, "connect", a.verdict, a.reason, a.dialed)
		})
	}
}

func (w *world) expect(t *testing.T, kind, verdict, reason, dialed string) {
	t.Helper()
	if ev := w.event(t, 0); ev.Kind != kind || ev.Verdict != verdict || ev.Reason != reason || ev.Host == "" && kind != "http" || verdict == Allowed && ev.Rule == "" {
		t.Errorf("%+v", ev)
	}
	if got := strings.Join(w.list(&w.dialed), " "); got != dialed {
		t.Errorf("dialed %q, want %q", got, dialed)
	}
}

// What is refused by its name is not even looked up: a query can carry data out.
func TestRefusedNamesAreNotResolved(t *testing.T) {
	w := publicWorld(t)
	addr := w.start(t, publicPolicy(), Listener{Kind: Proxy})[0]
	for _, host := range []string{"secret.evil.test", "x", "127.1", "0x7f.1", "a..b", "%61pi.example.test", "[::1]"} {
		c := dial(t, addr)
		send(t, c, "CONNECT "+host+":443 HTTP/1.1\r\n\r\n")
		if head := headOf(t, bufio.NewReader(c)); !strings.HasPrefix(head, "HTTP/1.1 40") {
			t.Errorf("%s: %q", host, head)
		}
	}
	if asked := w.list(&w.asked); len(asked) > 0 {
		t.Errorf("resolved %q", asked)
	}
}

// A name that is another address by the time of the connection (DNS rebinding) is resolved once: what was judged is dialed.
func TestRebinding(t *testing.T) {
	w := publicWorld(t)
	answers := [][]netip.Addr{{netip.MustParseAddr("93.184.216.34")}, {netip.MustParseAddr("127.0.0.1")}}
	asked := 0
	cfg := Config{Policy: publicPolicy(), Listeners: []Listener{{Kind: Proxy}}}
	names := w.names
	w.names = nil
	cfg.Resolve = func(context.Context, string) ([]netip.Addr, error) {
		asked++
		return answers[(asked-1)%2], nil
	}
	addr := w.startWith(t, cfg)[0]
	w.names = names
	for i := range 4 {
		c := dial(t, addr)
		send(t, c, "CONNECT api.example.test:443 HTTP/1.1\r\n\r\nx\n")
		want := []string{"HTTP/1.1 200", "HTTP/1.1 403"}[i%2]
		if head := headOf(t, bufio.NewReader(c)); !strings.HasPrefix(head, want) {
			t.Errorf("%d: %q", i, head)
		}
		check(t, c.Close())
		w.event(t, i)
	}
	if got := w.list(&w.dialed); !slices.Equal(got, []string{"93.184.216.34:443", "93.184.216.34:443"}) || asked != 4 {
		t.Errorf("resolved %d times, dialed %q", asked, got)
	}
}

func TestConnectMalformed(t *testing.T) {
	w := publicWorld(t)
	addr := w.start(t, publicPolicy(), Listener{Kind: Proxy})[0]
	for _, target := range []string{
		"api.example.test", "api.example.test:", ":443", "api.example.test:0", "api.example.test:65536", "api.example.test:+443", "a@api.example.test:443",
		"api.example.test:80:443", "http://api.example.test:443", "api.example.test:443/", "[api.example.test:443", "::1:443", "/", "*", "api.example.test:443#", "api.example.test\\@x:443",
	} {
		c := dial(t, addr)
		send(t, c, "CONNECT "+target+" HTTP/1.1\r\n\r\n")
		if head := headOf(t, bufio.NewReader(c)); !strings.HasPrefix(head, "HTTP/1.1 40") {
			t.Errorf("%s: %q", target, head)
		}
	}
	if dialed := w.list(&w.dialed); len(dialed) > 0 {
		t.Errorf("dialed %q", dialed)
	}
}

// Bytes that a client sends without waiting for the answer to CONNECT are never taken for a request.
func TestConnectRefusedThenBytes(t *testing.T) {
	w := publicWorld(t)
	addr := w.start(t, publicPolicy(), Listener{Kind: Proxy})[0]
	c := dial(t, addr)
	send(t, c, "CONNECT evil.test:80 HTTP/1.1\r\n\r\nGET http://api.example.test/ HTTP/1.1\r\n\r\n")
	all, err := io.ReadAll(c)
	check(t, err)
	if strings.Count(string(all), "HTTP/1.1") != 1 || len(w.list(&w.dialed)) > 0 {
		t.Errorf("%q, dialed %q", all, w.dialed)
	}
}

func TestDialLimits(t *testing.T) {
	t.Run("queue", func(t *testing.T) {
		w := publicWorld(t)
		release := make(chan struct{})
		w.dialing = func() { <-release }
		cfg := Config{Policy: publicPolicy(), Listeners: []Listener{{Kind: Proxy}}, Limits: Limits{Dials: 1, Dial: 200 * time.Millisecond}}
		addr := w.startWith(t, cfg)[0]
		first, second := dial(t, addr), dial(t, addr)
		send(t, first, "CONNECT api.example.test:443 HTTP/1.1\r\n\r\n")
		time.Sleep(20 * time.Millisecond)
		send(t, second, "CONNECT api.example.test:443 HTTP/1.1\r\n\r\n")
		if head := headOf(t, bufio.NewReader(second)); !strings.HasPrefix(head, "HTTP/1.1 503") {
			t.Errorf("%q", head)
		}
		close(release)
	})
	t.Run("time", func(t *testing.T) {
		w := publicWorld(t)
		cfg := Config{
			Policy: publicPolicy(), Listeners: []Listener{{Kind: Proxy}}, Limits: Limits{Dial: 100 * time.Millisecond},
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
		}
		addr := w.startWith(t, cfg)[0]
		c := dial(t, addr)
		send(t, c, "CONNECT api.example.test:443 HTTP/1.1\r\n\r\n")
		if all, _ := io.ReadAll(c); !strings.HasPrefix(string(all), "HTTP/1.1 502") || !strings.Contains(string(all), "timed out") {
			t.Errorf("%q", all)
		}
	})
	t.Run("connections", func(t *testing.T) {
		w := publicWorld(t)
		addr := w.startWith(t, Config{Policy: publicPolicy(), Listeners: []Listener{{Kind: Proxy}}, Limits: Limits{Conns: 1}})[0]
		first := dial(t, addr)
		send(t, first, "CONNECT api.example.test:443 HTTP/1.1\r\n\r\n")
		headOf(t, bufio.NewReader(first))
		second := dial(t, addr)
		send(t, second, "CONNECT api.example.test:443 HTTP/1.1\r\n\r\n")
		if head := headOf(t, bufio.NewReader(second)); !strings.HasPrefix(head, "HTTP/1.1 503") {
			t.Errorf("%q", head)
		}
	})
}

func TestHeadTimeout(t *testing.T) {
	w := publicWorld(t)
	limits := Limits{Header: 100 * time.Millisecond, Idle: 200 * time.Millisecond}
	addr := w.startWith(t, Config{Policy: publicPolicy(), Listeners: []Listener{{Kind: Proxy}}, Limits: limits})[0]
	for sent, want := range map[string]string{"": "", "GET http://a/ HT": "HTTP/1.1 408", "\x05": "", "\x05\x01\x00\x05\x01": "\x05\x00\x05\x01"} {
		c := dial(t, addr)
		send(t, c, sent)
		if got, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(got), want) || (want == "") != (len(got) == 0) {
			t.Errorf("%q: %q, %v", sent, got, err)
		}
	}
}

// Bytes that come with the request, more of them than are read at once, all arrive.
func TestEarlyBytes(t *testing.T) {
	early := strings.Repeat("0123456789", 2000)
	heard := make(chan string, 1)
	w := publicWorld(t)
	w.servers["93.184.216.34:443"] = tcpServer(t, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		heard <- string(b)
	})
	addr := w.start(t, publicPolicy(), Listener{Kind: Proxy})[0]
	for _, first := range []string{"CONNECT api.example.test:443 HTTP/1.1\r\n\r\n", "\x05\x01\x00" + socksAsk("api.example.test", 443)} {
		for _, bytes := range []string{early, string(tlstest.ClientHello(t, "api.example.test")) + early} {
			c := dial(t, addr)
			send(t, c, first+bytes)
			check(t, c.CloseWrite())
			if got := <-heard; got != bytes {
				t.Errorf("%d bytes of %d", len(got), len(bytes))
			}
		}
	}
}

// What is no protocol of ours is not waited for.
func TestNoProtocol(t *testing.T) {
	w := publicWorld(t)
	addr := w.start(t, publicPolicy(), Listener{Kind: Proxy})[0]
	for _, sent := range []string{"\x16\x03\x01", "\x04\x01\x00\x50\x01\x02\x03\x04\x00", "\x00"} {
		c := dial(t, addr)
		send(t, c, sent)
		if head := headOf(t, bufio.NewReader(c)); !strings.HasPrefix(head, "HTTP/1.1 400 ") {
			t.Errorf("%q", head)
		}
	}
}
