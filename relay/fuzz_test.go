package relay

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/relay/http1"
	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

// oracle is a proxy whose dialer keeps account of what it was told to dial, and connects to a server that says what it hears.
type oracle struct {
	addr   string
	mu     sync.Mutex
	dialed []string
	asked  []string
	heard  []byte
	events int
}

// granted is all that the policy allows: whatever a program says, nothing else may be dialed.
func granted() map[string]bool {
	return map[string]bool{"93.184.216.34:80": true, "93.184.216.34:443": true, "93.184.216.35:8443": true}
}

func newOracle(f *testing.F) *oracle {
	f.Helper()
	o := &oracle{}
	server := tcpServer(f, func(c *net.TCPConn) {
		_ = c.SetDeadline(time.Now().Add(500 * time.Millisecond))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		b, _ := io.ReadAll(c)
		o.mu.Lock()
		o.heard = append(o.heard, b...)
		o.mu.Unlock()
	})
	files, addrs := sockets(f, []Listener{{Kind: Proxy}})
	o.addr = addrs[0]
	cfg := Config{
		Policy:    netpolicy.Policy{Mode: netpolicy.Allowlist, AllowedHosts: []string{"api.test", "93.184.216.34", "*.pkg.test:8443", "private.test", "169.254.169.254"}},
		Listeners: []Listener{{Kind: Proxy}},
		Limits:    Limits{Idle: 200 * time.Millisecond, Header: 200 * time.Millisecond, Dial: 200 * time.Millisecond, unbraked: true},
		Own:       func() ([]netip.Addr, error) { return nil, nil },
		Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.asked = append(o.asked, host)
			switch {
			case host == "api.test":
				return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
			case strings.HasSuffix(host, ".pkg.test"):
				return []netip.Addr{netip.MustParseAddr("93.184.216.35")}, nil
			}
			return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("169.254.169.254")}, nil
		},
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			o.mu.Lock()
			o.dialed = append(o.dialed, network+" "+addr)
			o.mu.Unlock()
			return (&net.Dialer{}).DialContext(ctx, "tcp", server)
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, cfg, files, func(Event) {
			o.mu.Lock()
			o.events++
			o.mu.Unlock()
		})
	}()
	f.Cleanup(func() { cancel(); check(f, <-done) })
	return o
}

// try sends bytes, reads all that comes, and then looks at what was done outside.
func (o *oracle) try(t *testing.T, sent []byte) {
	t.Helper()
	c, err := net.Dial("tcp4", o.addr)
	check(t, err)
	defer pipe.Shut(c)
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = c.Write(sent)
	tcp, _ := c.(*net.TCPConn)
	_ = tcp.CloseWrite()
	if _, err := io.Copy(io.Discard, c); err != nil {
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			t.Errorf("%q: no end", sent)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range o.dialed {
		if !granted()[strings.TrimPrefix(d, "tcp ")] {
			t.Errorf("%q: dialed %q", sent, d)
		}
	}
	for _, host := range o.asked {
		if host != "api.test" && host != "private.test" && !strings.HasSuffix(host, ".pkg.test") {
			t.Errorf("%q: resolved %q", sent, host)
		}
	}
	o.dialed, o.asked, o.heard = nil, nil, nil
}

// Nothing that is not granted is ever dialed, or looked up.
func FuzzProxy(f *testing.F) {
	for _, s := range []string{
		"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n",
		"GET http://api.test/ HTTP/1.1\r\n\r\nGET http://evil.test/ HTTP/1.1\r\n\r\n",
		"POST http://a.pkg.test:8443/ HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET http://evil.test/ HTTP/1.1\r\n\r\n",
		"POST http://api.test/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET http://10.0.0.1/ HTTP/1.1\r\n\r\n",
		"GET http://api.test@evil.test/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
		"CONNECT api.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n\x16\x03\x01\x00\x05hello",
		"CONNECT evil.test:443 HTTP/1.1\r\n\r\nCONNECT api.test:443 HTTP/1.1\r\n\r\n",
		"CONNECT private.test:443 HTTP/1.1\r\n\r\n",
		"CONNECT [::ffff:93.184.216.34]:443 HTTP/1.1\r\n\r\n",
		"CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n",
		wsAsk,
	} {
		f.Add([]byte(s))
	}
	o := newOracle(f)
	f.Fuzz(func(t *testing.T, sent []byte) { o.try(t, sent) })
}

func FuzzSocks(f *testing.F) {
	for _, s := range []string{
		socksAsk("api.test", 443), socksAsk("evil.test", 443), socksAsk("a.pkg.test", 8443), socksAsk("93.184.216.34", 80), socksAsk("::ffff:93.184.216.34", 80),
		socksAsk("private.test", 80), socksAsk("169.254.169.254", 80), socksAsk("::1", 80), socksAsk("api.test.", 443) + "hello", socksAsk("api.test\x00", 443), socksAsk("api.test:443", 1),
	} {
		f.Add([]byte(s))
	}
	o := newOracle(f)
	f.Fuzz(func(t *testing.T, sent []byte) { o.try(t, append([]byte("\x05\x01\x00"), sent...)) })
}

// What ReadHead passes is read in one way only: written anew and read again it is the same.
func FuzzHead(f *testing.F) {
	f.Add([]byte("GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\nX:  y \r\n\r\n"))
	f.Add([]byte("POST http://api.test:80/a?b HTTP/1.0\r\nContent-Length: 3\r\nConnection: close, x\r\n\r\nabc"))
	f.Add([]byte("POST http://api.test/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := http1.ReadHead(reader(b), 64<<10)
		if err != nil {
			return
		}
		to, err := http1.Absolute(h.Target)
		if err != nil {
			return
		}
		x := &exchange{head: h, path: to.Path, up: &upstream{decision: netpolicy.Decision{Host: "checked.test", Port: 8080}}}
		text := x.forwardHead()
		again, err := http1.ReadHead(reader([]byte(text)), 128<<10)
		if err != nil {
			t.Fatalf("%q became %q: %v", b, text, err)
		}
		if again.Method != h.Method || again.Target != to.Path || again.Length != h.Length || again.Minor != 1 {
			t.Errorf("%q became %q", b, text)
		}
		if hosts := again.Values("Host"); len(hosts) != 1 || hosts[0] != "checked.test:8080" {
			t.Errorf("%q became %q", b, text)
		}
		if bytes.Contains([]byte(text), []byte("\r\n\r\n")) && !strings.HasSuffix(text, "\r\n\r\n") {
			t.Errorf("%q became %q", b, text)
		}
	})
}

// What ReadResponse passes net/http reads in the same way, and no less of it belongs to the body once it is written anew.
func FuzzResponse(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX: a\n b\n\r\nabc"), "GET")
	f.Add([]byte("HTTP/1.0 304\nContent-Length: 03\nConnection: keep-alive, x\nX: 1\n\n"), "HEAD")
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), "POST")
	f.Fuzz(func(t *testing.T, b []byte, method string) {
		resp, err := http1.ReadResponse(reader(b), 64<<10, method)
		if err != nil {
			return
		}
		other, err := http.ReadResponse(reader(bytes.TrimPrefix(b, []byte("\n"))), &http.Request{Method: method})
		if err != nil {
			return // it is stricter with the names of trailers, and the like
		}
		defer func() { _ = other.Body.Close() }()
		length := map[bool]int64{true: -1, false: resp.Length}[resp.Length < 0]
		if other.ContentLength != length && method != http.MethodHead && resp.Status >= 200 && resp.Status != 204 && resp.Status != 304 {
			t.Errorf("%q: length %d, net/http says %d", b, resp.Length, other.ContentLength)
		}
		if (resp.Length == http1.Chunked) != (len(other.TransferEncoding) > 0) && other.Body != http.NoBody {
			t.Errorf("%q: %d, net/http says %q", b, resp.Length, other.TransferEncoding)
		}
		if other.StatusCode != resp.Status || other.Close && !resp.Last {
			t.Errorf("%q: %+v, net/http says %+v", b, resp, other)
		}
		text := resp.Render((&exchange{head: &http1.Head{Minor: 1}}).framing(resp, resp.Length < 0, true))
		again, err := http1.ReadResponse(reader([]byte(text)), 128<<10, method)
		if err != nil || again.Status != resp.Status || again.Length != resp.Length && resp.Length != http1.UntilEnd {
			t.Errorf("%q became %q: %+v, %v", b, text, again, err)
		}
		for _, name := range []string{"Connection", "Transfer-Encoding", "Upgrade", "Proxy-Authenticate"} {
			if len(again.Values(name)) > 0 && (name != "Transfer-Encoding" || resp.Length >= 0) {
				t.Errorf("%q became %q", b, text)
			}
		}
	})
}

func reader(b []byte) *bufio.Reader { return bufio.NewReaderSize(bytes.NewReader(b), 64) }
