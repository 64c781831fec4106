package relay

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

// world is what lies outside in a test: names, what they resolve to, and which server really answers at an address. Nothing
// leaves the loopback.
type world struct {
	mu      sync.Mutex
	names   map[string][]string
	servers map[string]string // "93.184.216.34:443" -> "127.0.0.1:12345"; what is not here is refused
	dialed  []string
	asked   []string
	events  []Event
	dialing func() // called at each dial
}

func (w *world) resolve(_ context.Context, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, host)
	var found []netip.Addr
	for _, a := range w.names[host] {
		found = append(found, netip.MustParseAddr(a))
	}
	if found == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return found, nil
}

func (w *world) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	w.dialed = append(w.dialed, addr)
	to, known := w.servers[addr]
	dialing := w.dialing
	w.mu.Unlock()
	if dialing != nil {
		dialing()
	}
	if network != "unix" && w.servers != nil {
		if !known {
			to = "127.0.0.1:1" // nobody listens
		}
		addr = to
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

func (w *world) note(ev Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, ev)
}

func (w *world) list(what *[]string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(*what)
}

// event waits for the n-th event.
func (w *world) event(t testing.TB, n int) Event {
	t.Helper()
	for range 500 {
		w.mu.Lock()
		if len(w.events) > n {
			defer w.mu.Unlock()
			return w.events[n]
		}
		w.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("event %d does not come", n)
	return Event{}
}

// start runs a relay until the test ends, and gives the addresses of its listeners. Afterwards descriptors and goroutines
// must be as many as before.
func (w *world) start(t testing.TB, policy netpolicy.Policy, listeners ...Listener) []string {
	t.Helper()
	return w.startWith(t, Config{Policy: policy, Listeners: listeners})
}

func (w *world) startWith(t testing.TB, cfg Config) []string {
	t.Helper()
	checkLeaks(t)
	files, addrs := sockets(t, cfg.Listeners)
	if cfg.Policy.Mode == "" {
		cfg.Policy.Mode = netpolicy.Isolated
	}
	if w.names != nil {
		cfg.Resolve = w.resolve
	}
	if cfg.Dial == nil {
		cfg.Dial = w.dial
	}
	cfg.Own = func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("198.100.0.9")}, nil }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, cfg, files, w.note) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(10 * time.Second):
			buf := make([]byte, 1<<20)
			t.Fatalf("Serve does not end:\n%s", buf[:runtime.Stack(buf, true)])
		}
	})
	return addrs
}

// sockets makes what a launcher would make inside a network namespace.
func sockets(t testing.TB, listeners []Listener) (files []*os.File, addrs []string) {
	t.Helper()
	for _, l := range listeners {
		var c interface {
			File() (*os.File, error)
			io.Closer
		}
		switch l.Kind {
		case DNS:
			u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			check(t, err)
			addrs, c = append(addrs, u.LocalAddr().String()), u
		default:
			host := "127.0.0.1:0"
			if l.Kind == Direct {
				host = "0.0.0.0:0"
			}
			ln, err := net.Listen("tcp4", host)
			check(t, err)
			tcp, _ := ln.(*net.TCPListener)
			addrs, c = append(addrs, ln.Addr().String()), tcp
		}
		f, err := c.File()
		check(t, err)
		check(t, c.Close())
		files = append(files, f)
	}
	return files, addrs
}

// checkLeaks compares descriptors and goroutines before the test and after all that it has cleaned up.
func checkLeaks(t testing.TB) {
	t.Helper()
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	t.Cleanup(func() {
		var g, f int
		for range 300 {
			if g, f = runtime.NumGoroutine(), descriptors(t); g <= goroutines && f <= files {
				return
			}
			runtime.GC() // pipes of splice are kept for reuse until then
			time.Sleep(10 * time.Millisecond)
		}
		buf := make([]byte, 1<<20)
		t.Errorf("%d goroutines before, %d after; %d descriptors before, %d after\n%s", goroutines, g, files, f, buf[:runtime.Stack(buf, true)])
	})
}

func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	n := 0
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(to, "anon_inode:") {
			n++ // epoll and its event are made once
		}
	}
	return n
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tcpServer answers each connection with a function, on a goroutine of its own.
func tcpServer(t testing.TB, handle func(c *net.TCPConn)) string {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	check(t, err)
	return serveOn(t, ln, func(c net.Conn) {
		tcp, _ := c.(*net.TCPConn)
		handle(tcp)
	})
}

func serveOn(t testing.TB, ln net.Listener, handle func(c net.Conn)) string {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer pipe.Shut(c)
				handle(c)
			})
		}
	})
	t.Cleanup(func() { pipe.Shut(ln); wg.Wait() })
	return ln.Addr().String()
}

func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp4", addr)
	check(t, err)
	t.Cleanup(func() { pipe.Shut(c) })
	check(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	tcp, _ := c.(*net.TCPConn)
	return tcp
}

// dialAndRead is for connections that may be reset so soon that connect(2) says it already.
func dialAndRead(addr string) (string, error) {
	c, err := net.Dial("tcp4", addr)
	if err != nil {
		return "", err
	}
	defer pipe.Shut(c)
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	b, err := io.ReadAll(c)
	return string(b), err
}

func send(t testing.TB, c net.Conn, s string) {
	t.Helper()
	_, err := io.WriteString(c, s)
	check(t, err)
}

// expect reads exactly so much.
func expect(t testing.TB, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(r, got)
	if string(got[:n]) != want {
		t.Fatalf("got %q, %v; want %q", got[:n], err, want)
	}
}

// expectEnd reads to the end, of which there must be nothing left but that.
func expectEnd(t testing.TB, r io.Reader) {
	t.Helper()
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Fatalf("got %q, %v; want the end", rest, err)
	}
}

// headOf reads a response's head.
func headOf(t testing.TB, r *bufio.Reader) string {
	t.Helper()
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		b.WriteString(line)
		if err != nil {
			t.Fatalf("read head: %q, %v", b.String(), err)
		}
		if line == "\r\n" {
			return b.String()
		}
	}
}

func port(addr string) int {
	_, p, _ := net.SplitHostPort(addr)
	n := 0
	_, _ = fmt.Sscan(p, &n)
	return n
}
