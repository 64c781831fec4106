package relay

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/relay/pipe"
	"github.com/sandboxrun/sandboxrun/relay/proxytest"
	"github.com/sandboxrun/sandboxrun/relay/tlsname/tlstest"
)

// upstreamWorld has a proxy of the caller's, by which every name leads to one server, and no name can be resolved here but two.
func upstreamWorld(t *testing.T, scheme, login, server string, listeners ...Listener) (w *world, proxy *proxytest.Proxy, addrs []string) {
	t.Helper()
	proxy = proxytest.Start(t, "me:pass word", proxytest.Local(server))
	w = &world{
		names:   map[string][]string{"priv.corp.test": {"10.0.0.1"}, "direct.corp.test": {"93.184.216.34"}},
		servers: map[string]string{"10.0.0.1:80": server, "93.184.216.34:80": server, "93.184.216.34:443": server, "proxy.test:3128": proxy.Address},
	}
	p := &netpolicy.Proxy{Scheme: scheme, Address: "proxy.test:3128"}
	p.User, p.Password, _ = strings.Cut(login, ":")
	addrs = w.startWith(t, Config{
		Listeners: listeners,
		Upstream:  &netpolicy.Upstream{HTTP: p, Tunnel: p, NoProxy: []string{"direct.corp.test"}},
		Policy: netpolicy.Policy{
			Mode: netpolicy.Allowlist, AllowPrivate: []string{"priv.corp.test"},
			AllowedHosts: []string{"*.corp.test", "*.out.test", "no.test", "10.0.0.1", "93.184.216.40", "198.100.0.9", "meta.internal"},
		},
	})
	return w, proxy, addrs
}

// What goes through the proxy, and what never does: what nobody allowed, and what has a meaning in one network alone.
func TestUpstream(t *testing.T) {
	server := tcpServer(t, func(c *net.TCPConn) {
		_, _ = bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(c, "UP")
	})
	for _, test := range []struct {
		scheme, login, host string
		asked               string
		why                 string // of a refusal or failure
		direct              string // what is dialed in place of the proxy
	}{
		{"http", "me:pass word", "api.out.test:443", "CONNECT api.out.test:443", "", ""},
		{"http", "me:pass word", "API.out.test.:443", "CONNECT api.out.test:443", "", ""},
		{"http", "me:pass word", "93.184.216.40:443", "CONNECT 93.184.216.40:443", "", ""},
		{"socks5", "me:pass word", "api.out.test:443", "SOCKS api.out.test:443", "", ""},
		{"socks5", "me:pass word", "93.184.216.40:443", "SOCKS 93.184.216.40:443", "", ""},
		{"http", "me:wrong", "api.out.test:443", "!CONNECT api.out.test:443", "credentials", ""},
		{"http", "", "api.out.test:443", "!CONNECT api.out.test:443", "credentials", ""},
		{"socks5", "me:wrong", "api.out.test:443", "!SOCKS", "credentials", ""},
		{"socks5", "", "api.out.test:443", "!SOCKS", "credentials", ""},
		{"http", "me:pass word", "no.test:443", "CONNECT no.test:443", "the upstream proxy refuses", ""},
		{"socks5", "me:pass word", "no.test:443", "SOCKS no.test:443", "the upstream proxy refuses", ""},
		{"http", "me:pass word", "evil.test:443", "", "no_rule", ""},
		{"socks5", "me:pass word", "api.out.test:22", "", "wrong_port", ""},
		{"http", "me:pass word", "10.0.0.1:80", "", "private_address", ""},
		{"http", "me:pass word", "198.100.0.9:443", "", "own_address", ""},
		{"http", "me:pass word", "meta.internal:80", "", "no such host", ""},
		{"http", "me:pass word", "priv.corp.test:80", "", "", "10.0.0.1:80"},
		{"socks5", "me:pass word", "direct.corp.test:443", "", "", "93.184.216.34:443"},
	} {
		for _, way := range []string{"CONNECT", "SOCKS"} {
			w, proxy, addrs := upstreamWorld(t, test.scheme, test.login, server, Listener{Kind: Proxy})
			c := dial(t, addrs[0])
			if host, port, _ := net.SplitHostPort(test.host); way == "CONNECT" {
				send(t, c, "CONNECT "+test.host+" HTTP/1.1\r\n\r\nhello\n")
			} else {
				n := 0
				_, _ = fmt.Sscan(port, &n)
				send(t, c, "\x05\x01\x00"+socksAsk(host, n)+"hello\n")
			}
			_ = c.CloseWrite()
			got, _ := io.ReadAll(c)
			if strings.HasSuffix(string(got), "UP") != (test.why == "") || strings.Contains(string(got), "secret") || strings.Contains(string(got), "proxy.test") {
				t.Errorf("%+v by %s: %q", test, way, got)
			}
			if asked := strings.Join(proxy.Asked(), " "); asked != test.asked {
				t.Errorf("%+v by %s: the proxy was asked for %q", test, way, asked)
			}
			ev := w.event(t, 0)
			if !strings.Contains(ev.Reason, test.why) || (ev.Via == "proxy.test:3128") != (test.asked != "") || strings.Contains(fmt.Sprint(ev), "pass word") {
				t.Errorf("%+v by %s: %+v", test, way, ev)
			}
			if test.asked != "" && len(w.list(&w.asked)) > 0 {
				t.Errorf("%+v by %s: resolved %q here", test, way, w.asked)
			}
			if dialed := w.list(&w.dialed); test.direct != "" && !slices.Equal(dialed, []string{test.direct}) {
				t.Errorf("%+v by %s: dialed %q", test, way, dialed)
			}
		}
	}
}

// Requests of plain HTTP go to an HTTP proxy as they are, because few let a tunnel to port 80 be made. What the proxy wants of us is not the program's.
func TestUpstreamHTTP(t *testing.T) {
	server := tcpServer(t, func(c *net.TCPConn) {
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		text := req.Host + req.RequestURI + req.Header.Get("Upgrade") + strings.Join(req.Header["Proxy-Authorization"], "")
		if req.Header.Get("Upgrade") != "" {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Yes\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+text)
			return
		}
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	})
	for _, test := range []struct {
		scheme, login, request string
		status, body, asked    string
	}{
		{"http", "me:pass word", "GET http://api.out.test/a?b HTTP/1.1\r\nProxy-Authorization: Basic x\r\n\r\n", "200", "api.out.test/a?b", "GET http://api.out.test/a?b"},
		{"http", "me:pass word", "GET http://93.184.216.40:80 HTTP/1.0\r\n\r\n", "200", "93.184.216.40/", "GET http://93.184.216.40/"},
		{"http", "me:pass word", strings.ReplaceAll(wsAsk, "api.example.test", "api.out.test"), "101", "api.out.test/wswebsocket", "CONNECT api.out.test:80"},
		{"socks5", "me:pass word", "GET http://api.out.test/a HTTP/1.1\r\n\r\n", "200", "api.out.test/a", "SOCKS api.out.test:80"},
		{"http", "me:wrong", "GET http://api.out.test/a HTTP/1.1\r\n\r\n", "502", "credentials", "!GET http://api.out.test/a"},
		{"http", "me:pass word", "GET http://direct.corp.test/ HTTP/1.1\r\n\r\n", "200", "direct.corp.test/", ""},
		{"http", "me:pass word", "GET http://evil.test/ HTTP/1.1\r\n\r\n", "403", "no rule", ""},
	} {
		w, proxy, addrs := upstreamWorld(t, test.scheme, test.login, server, Listener{Kind: Proxy})
		c := dial(t, addrs[0])
		send(t, c, test.request)
		_ = c.CloseWrite()
		got, _ := io.ReadAll(c)
		if !strings.HasPrefix(string(got), "HTTP/1.1 "+test.status) || !strings.Contains(string(got), test.body) || strings.Contains(string(got), "Basic") {
			t.Errorf("%+v: %q", test, got)
		}
		if asked := strings.Join(proxy.Asked(), " "); asked != test.asked {
			t.Errorf("%+v: the proxy was asked for %q", test, asked)
		}
		if ev := w.event(t, 0); (ev.Via != "") != (test.asked != "") {
			t.Errorf("%+v: %+v", test, ev)
		}
	}
}

// The server name is looked at as ever; and who speaks first is heard.
func TestUpstreamTunnels(t *testing.T) {
	evil, good := tlstest.ClientHello(t, "evil.test"), tlstest.ClientHello(t, "api.out.test")
	heard := make(chan string, 1)
	server := tcpServer(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "SSH-2.0-test\r\n")
		b, _ := io.ReadAll(c)
		heard <- string(b)
	})
	for _, scheme := range []string{"http", "socks5"} {
		_, _, addrs := upstreamWorld(t, scheme, "me:pass word", server, Listener{Kind: Proxy})
		for _, hello := range [][]byte{evil, good} {
			c := dial(t, addrs[0])
			send(t, c, "\x05\x01\x00"+socksAsk("api.out.test", 443))
			expect(t, c, "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00SSH-2.0-test\r\n")
			send(t, c, string(hello))
			_ = c.CloseWrite()
			_, _ = io.ReadAll(c)
			if got := <-heard; got != map[bool]string{true: "", false: string(good)}[string(hello) == string(evil)] {
				t.Errorf("%s: the server heard %q", scheme, got)
			}
		}
	}
}

// A proxy that says nothing, or something else, holds nothing up for long, and none of it comes to the program.
func TestUpstreamBroken(t *testing.T) {
	for _, answer := range []string{
		"", "SSH-2.0-secret\r\n", "HTTP/1.1 200\r\nsecret\r\n\r\n", "HTTP/1.1 500 secret\r\n\r\nsecret", "HTTP/1.1 101 secret\r\n\r\n", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("secret", 1<<16) + "\r\n\r\n",
		"\x05\x00\x05\x00", "\x05\xff", "\x04\x00", "\x05\x02", "\x05\x00\x05\x00\x00\x07secret", "\x05\x00\x05\x00\x00\x03\x00secret",
	} {
		for _, scheme := range []string{netpolicy.ProxyHTTP, netpolicy.ProxySOCKS} {
			address := tcpServer(t, func(c *net.TCPConn) {
				_, _ = io.WriteString(c, answer)
				_, _ = io.Copy(io.Discard, c)
			})
			p := &netpolicy.Proxy{Scheme: scheme, Address: address}
			w := &world{}
			addr := w.startWith(t, Config{
				Listeners: []Listener{{Kind: Proxy}}, Upstream: &netpolicy.Upstream{Tunnel: p}, Limits: Limits{Dial: 200 * time.Millisecond},
				Policy: netpolicy.Policy{Mode: netpolicy.Allowlist, AllowedHosts: []string{"api.out.test"}},
			})[0]
			c := dial(t, addr)
			send(t, c, "CONNECT api.out.test:443 HTTP/1.1\r\n\r\n")
			got, err := io.ReadAll(c)
			if !strings.HasPrefix(string(got), "HTTP/1.1 502 ") || strings.Contains(string(got), "secret") || err != nil {
				t.Errorf("%s, %.40q: %q, %v", scheme, answer, got, err)
			}
			if ev := w.event(t, 0); ev.Verdict != Failed || strings.Contains(ev.Reason, "secret") {
				t.Errorf("%s, %.40q: %+v", scheme, answer, ev)
			}
		}
	}
}

// Programs that know of no proxy go through the upstream proxy too.
func TestUpstreamDirect(t *testing.T) {
	server := tcpServer(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "UP") })
	_, proxy, addrs := upstreamWorld(t, "socks5", "me:pass word", server, Listener{Kind: Direct, Port: 443}, Listener{Kind: DNS})
	udp, err := net.Dial("udp4", addrs[1])
	check(t, err)
	defer pipe.Shut(udp)
	answer, ok := ask(t, udp, queryFor(t, "api.out.test.", dnsmessage.TypeA, false)).Answers[0].Body.(*dnsmessage.AResource)
	if !ok {
		t.Fatal("no address")
	}
	c, err := net.Dial("tcp4", netip.AddrPortFrom(netip.AddrFrom4(answer.A), uint16(port(addrs[0]))).String())
	check(t, err)
	defer pipe.Shut(c)
	send(t, c, "hello")
	expect(t, c, "UP")
	if asked := proxy.Asked(); !slices.Equal(asked, []string{"SOCKS api.out.test:443"}) {
		t.Error(asked)
	}
}
