package relay

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

// forwardTo starts a relay with one forward, and gives its address.
func forwardTo(t testing.TB, target string) (*world, string) {
	t.Helper()
	w := &world{}
	return w, w.startWith(t, Config{Listeners: []Listener{{Kind: Forward, Port: 9000, Target: target}}})[0]
}

func TestForwardHalfClose(t *testing.T) {
	t.Run("client first", func(t *testing.T) {
		w, addr := forwardTo(t, tcpServer(t, func(c *net.TCPConn) {
			n, _ := io.Copy(io.Discard, c)
			time.Sleep(50 * time.Millisecond)
			_, _ = fmt.Fprintf(c, "got %d", n)
		}))
		c := dial(t, addr)
		send(t, c, strings.Repeat("q", 100_000))
		check(t, c.CloseWrite())
		expect(t, c, "got 100000")
		expectEnd(t, c)
		ev := w.event(t, 0)
		if ev.Verdict != Allowed || ev.Up != 100_000 || ev.Down != 10 || ev.Kind != "forward" || ev.Port != 9000 || ev.Duration < 50*time.Millisecond {
			t.Errorf("%+v", ev)
		}
	})
	t.Run("server first", func(t *testing.T) {
		heard := make(chan int64, 1)
		_, addr := forwardTo(t, tcpServer(t, func(c *net.TCPConn) {
			_, _ = io.WriteString(c, "hello")
			_ = c.CloseWrite()
			n, _ := io.Copy(io.Discard, c)
			heard <- n
		}))
		c := dial(t, addr)
		expect(t, c, "hello")
		expectEnd(t, c)
		send(t, c, strings.Repeat("w", 300_000))
		check(t, c.Close())
		if n := <-heard; n != 300_000 {
			t.Errorf("the server heard %d", n)
		}
	})
}

func TestForwardReset(t *testing.T) {
	t.Run("by the client", func(t *testing.T) {
		heard := make(chan error, 1)
		_, addr := forwardTo(t, tcpServer(t, func(c *net.TCPConn) {
			_, err := io.Copy(io.Discard, c)
			heard <- err
		}))
		c := dial(t, addr)
		send(t, c, "x")
		pipe.Reset(c)
		if err := <-heard; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the server heard %v", err)
		}
	})
	t.Run("by the client, after it had half-closed", func(t *testing.T) {
		heard := make(chan bool, 1)
		_, addr := forwardTo(t, tcpServer(t, func(c *net.TCPConn) {
			_, _ = io.Copy(io.Discard, c)
			heard <- true
			pipe.UntilDead(c)
			heard <- true
		}))
		c := dial(t, addr)
		check(t, c.CloseWrite())
		<-heard
		pipe.Reset(c)
		select {
		case <-heard:
		case <-time.After(5 * time.Second):
			t.Error("the server does not hear of it")
		}
	})
	t.Run("by the server", func(t *testing.T) {
		_, addr := forwardTo(t, tcpServer(t, func(c *net.TCPConn) {
			_, _ = io.ReadFull(c, make([]byte, 1))
			pipe.Reset(c)
		}))
		c := dial(t, addr)
		send(t, c, "x")
		if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client heard %v", err)
		}
	})
	t.Run("by the server, after an answer", func(t *testing.T) {
		answer := strings.Repeat("no!", 10_000)
		_, addr := forwardTo(t, tcpServer(t, func(c *net.TCPConn) {
			_, _ = io.ReadFull(c, make([]byte, 1))
			_, _ = io.WriteString(c, answer) // and close with the rest unread
		}))
		c := dial(t, addr)
		go func() { // more than is ever read
			_, _ = io.Copy(c, io.LimitReader(zeros{}, 64<<20))
		}()
		got, _ := io.ReadAll(c)
		if string(got) != answer {
			t.Errorf("of %d bytes of the answer the client got %d", len(answer), len(got))
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestForwardRefused(t *testing.T) {
	for _, target := range []string{"127.0.0.1:1", "unix:/nonexistent/a.sock"} {
		w, addr := forwardTo(t, target)
		if got, err := dialAndRead(addr); got != "" || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: the client heard %q, %v", target, got, err)
		}
		if ev := w.event(t, 0); ev.Verdict != Failed || !strings.HasPrefix(ev.Reason, "connect "+target+": ") {
			t.Errorf("%s: %+v", target, ev)
		}
	}
}

func TestForwardUnix(t *testing.T) {
	dir := t.TempDir()
	ln, err := net.Listen("unix", filepath.Join(dir, "real.sock"))
	check(t, err)
	serveOn(t, ln, func(c net.Conn) {
		b, _ := io.ReadAll(c)
		_, _ = c.Write(bytes.ToUpper(b))
	})
	check(t, os.Symlink("real.sock", filepath.Join(dir, "link.sock")))
	for _, name := range []string{"real.sock", "link.sock"} {
		w := &world{}
		addr := w.startWith(t, Config{Listeners: []Listener{{
			Kind: Forward, Port: 9000, Target: "unix:" + filepath.Join(dir, name), Socket: filepath.Join(dir, "real.sock"),
		}}})[0]
		c := dial(t, addr)
		send(t, c, "abc")
		check(t, c.CloseWrite())
		expect(t, c, "ABC")
		expectEnd(t, c)
		if ev := w.event(t, 0); ev.Verdict != Allowed || ev.Up != 3 || ev.Down != 3 {
			t.Errorf("%+v", ev)
		}
	}
}

// A program that can write the socket's directory could put a link in its place, to a socket that is not for it.
func TestForwardUnixFollowsNoLinkMadeLater(t *testing.T) {
	dir := t.TempDir()
	secret, err := net.Listen("unix", filepath.Join(dir, "docker.sock"))
	check(t, err)
	serveOn(t, secret, func(c net.Conn) { _, _ = io.WriteString(c, "root") })
	path := filepath.Join(dir, "pg.sock")
	w, addr := forwardTo(t, "unix:"+path)
	_, _ = dialAndRead(addr)
	w.event(t, 0) // by now the relay has looked at the path
	check(t, os.Symlink("docker.sock", path))
	if got, err := dialAndRead(addr); got != "" || err == nil {
		t.Errorf("got %q, %v", got, err)
	}
	if ev := w.event(t, 1); ev.Verdict != Failed || !strings.Contains(ev.Reason, "too many levels of symbolic links") {
		t.Errorf("%+v", ev)
	}
}

func TestForwardManyAtOnce(t *testing.T) {
	const many = 512
	all := make(chan struct{})
	var here sync.WaitGroup
	here.Add(many)
	_, addr := forwardTo(t, tcpServer(t, func(c *net.TCPConn) {
		b := make([]byte, 6)
		_, _ = io.ReadFull(c, b)
		here.Done()
		<-all
		_, _ = c.Write(b)
	}))
	go func() { here.Wait(); close(all) }()
	var wg sync.WaitGroup
	errs := make(chan error, many)
	for i := range many {
		wg.Go(func() {
			c, err := net.Dial("tcp4", addr)
			if err != nil {
				errs <- err
				return
			}
			defer pipe.Shut(c)
			want := fmt.Sprintf("%06d", i)
			_, _ = io.WriteString(c, want)
			if got, err := io.ReadAll(c); err != nil || string(got) != want {
				errs <- fmt.Errorf("got %q, %w", got, err)
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}

// What a slow reader does not take stays with the server: the relay holds no more than the kernel's buffers.
func TestForwardSlowReader(t *testing.T) {
	const size = 64 << 20
	sum := sha256.New()
	block := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	for range size / len(block) {
		sum.Write(block)
	}
	var written int64
	var mu sync.Mutex
	_, addr := forwardTo(t, tcpServer(t, func(c *net.TCPConn) {
		for range size / len(block) {
			n, _ := c.Write(block)
			mu.Lock()
			written += int64(n)
			mu.Unlock()
		}
	}))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c := dial(t, addr)
	time.Sleep(300 * time.Millisecond)
	mu.Lock()
	if written == size {
		t.Error("the server could write all of it, though nothing was read")
	}
	mu.Unlock()
	got := sha256.New()
	_, err := io.Copy(got, c)
	check(t, err)
	runtime.ReadMemStats(&after)
	if !bytes.Equal(got.Sum(nil), sum.Sum(nil)) {
		t.Error("other bytes came out")
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("%d bytes were allocated on the way", grown)
	}
}

func TestForwardIdle(t *testing.T) {
	w := &world{}
	echo := tcpServer(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	limits := Limits{Header: 50 * time.Millisecond, Idle: 50 * time.Millisecond, Dial: 50 * time.Millisecond}
	addr := w.startWith(t, Config{Limits: limits, Listeners: []Listener{{Kind: Forward, Port: 1, Target: echo}}})[0]
	c := dial(t, addr)
	time.Sleep(300 * time.Millisecond)
	send(t, c, "late")
	expect(t, c, "late")
}

// When all slots are taken, connections wait for one.
func TestForwardFull(t *testing.T) {
	w := &world{}
	echo := tcpServer(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	addr := w.startWith(t, Config{Limits: Limits{Conns: 1}, Listeners: []Listener{{Kind: Forward, Port: 1, Target: echo}}})[0]
	first, second := dial(t, addr), dial(t, addr)
	send(t, first, "1")
	expect(t, first, "1")
	send(t, second, "2")
	check(t, second.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	if _, err := second.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the second got %v", err)
	}
	check(t, first.Close())
	check(t, second.SetReadDeadline(time.Now().Add(5*time.Second)))
	expect(t, second, "2")
}

func TestServeRefusesWrongDescriptors(t *testing.T) {
	checkLeaks(t)
	for _, test := range []struct {
		made, said Listener
		want       string
	}{
		{Listener{Kind: DNS}, Listener{Kind: Forward}, "open listener 0, forward of port 0: "},
		{Listener{Kind: Forward}, Listener{Kind: DNS}, "open listener 0, dns of port 0: "},
		{Listener{Kind: Forward}, Listener{Kind: "tor", Port: 3}, "open listener 0, tor of port 3: there is no such kind"},
	} {
		files, _ := sockets(t, []Listener{test.made})
		err := Serve(t.Context(), Config{Listeners: []Listener{test.said}}, files, nil)
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%v as %v: %v", test.made, test.said, err)
		}
	}
	files, _ := sockets(t, []Listener{{Kind: Forward}})
	if err := Serve(t.Context(), Config{}, files, nil); err == nil {
		t.Error("more descriptors than listeners were taken")
	}
}

// TestForwardLoopback: 127.0.0.1 is tried first and stands for ::1; another address stands for itself.
func TestForwardLoopback(t *testing.T) {
	greet := func(name string) func(c net.Conn) {
		return func(c net.Conn) {
			_, _ = io.WriteString(c, name)
			_ = c.Close()
		}
	}
	six, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no ::1")
	}
	serveOn(t, six, greet("six"))
	n := port(six.Addr().String())
	_, addr := forwardTo(t, fmt.Sprintf("127.0.0.1:%d", n))
	if got, err := dialAndRead(addr); got != "six" {
		t.Errorf("only ::1 listens: got %q, %v", got, err)
	}
	_, other := forwardTo(t, fmt.Sprintf("127.0.0.2:%d", n))
	if got, err := dialAndRead(other); err == nil {
		t.Errorf("127.0.0.2 is not ::1: got %q", got)
	}
	four, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", n))
	if err != nil {
		t.Skip("somebody has taken the port")
	}
	serveOn(t, four, greet("four"))
	if got, err := dialAndRead(addr); got != "four" {
		t.Errorf("both listen: got %q, %v", got, err)
	}
	w, nobody := forwardTo(t, "127.0.0.1:1")
	if got, err := dialAndRead(nobody); err == nil {
		t.Errorf("nobody listens: got %q", got)
	}
	if ev := w.event(t, 0); ev.Verdict != Failed || !strings.Contains(ev.Reason, "127.0.0.1:1: connection refused") {
		t.Errorf("%+v", ev)
	}
}
