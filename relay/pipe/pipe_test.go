package pipe

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// connect makes a connection over the loopback: the relay's end, and the peer's.
func connect(t *testing.T) (ours, peer *net.TCPConn) {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer Shut(ln)
	if peer, err = net.DialTCP("tcp", nil, ln.Addr().(*net.TCPAddr)); err != nil {
		t.Fatal(err)
	}
	if ours, err = ln.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	_, _ = ours.SetDeadline(deadline), peer.SetDeadline(deadline)
	t.Cleanup(func() { Shut(ours); Shut(peer) })
	return ours, peer
}

type joined struct {
	sent, got int64
	err       error
}

// join joins a program and a server. What Join returns comes through the channel.
func join(ctx context.Context, t *testing.T, up, down Prelude) (program, server *net.TCPConn, done chan joined) {
	t.Helper()
	in, program := connect(t)
	out, server := connect(t)
	done = make(chan joined, 1)
	go func() {
		var j joined
		j.sent, j.got, j.err = Join(ctx, in, out, up, down)
		done <- j
	}()
	return program, server, done
}

func write(t *testing.T, w io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
}

// read reads to the end, or to a reset.
func read(r io.Reader) (string, bool) {
	data, err := io.ReadAll(r)
	return string(data), errors.Is(err, syscall.ECONNRESET)
}

// TestHalfClosed: each direction ends by itself.
func TestHalfClosed(t *testing.T) {
	program, server, done := join(t.Context(), t, nil, nil)
	write(t, program, "ask")
	_ = program.CloseWrite()
	if got, reset := read(server); got != "ask" || reset {
		t.Errorf("the server gets %q, reset %v", got, reset)
	}
	write(t, server, "answer")
	Shut(server)
	if got, reset := read(program); got != "answer" || reset {
		t.Errorf("the program gets %q, reset %v", got, reset)
	}
	if j := <-done; j != (joined{3, 6, nil}) {
		t.Errorf("%+v", j)
	}
}

// TestReset: a reset of one connection becomes a reset of the other.
func TestReset(t *testing.T) {
	program, server, done := join(t.Context(), t, nil, nil)
	write(t, program, "x")
	if _, err := io.ReadFull(server, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	Reset(server)
	if _, reset := read(program); !reset {
		t.Error("the program's connection ends without a reset")
	}
	if j := <-done; j != (joined{1, 0, nil}) {
		t.Errorf("%+v", j)
	}
}

// TestResetAfterEnd: a program that has ended its direction, and is then gone, ends the server's connection too.
func TestResetAfterEnd(t *testing.T) {
	program, server, done := join(t.Context(), t, nil, nil)
	_ = program.CloseWrite()
	if got, reset := read(server); got != "" || reset {
		t.Fatalf("%q, reset %v", got, reset)
	}
	Reset(program)
	if j := <-done; j.err != nil {
		t.Errorf("%+v", j)
	}
	if _, err := server.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the server's connection is still there: %v", err)
	}
}

// TestAnswerBeforeEnd: a server that refuses what the program still sends, and closes, gets its answer to the program.
func TestAnswerBeforeEnd(t *testing.T) {
	program, server, done := join(t.Context(), t, nil, nil)
	write(t, server, "413")
	Shut(server)
	got := make([]byte, 3)
	if _, err := io.ReadFull(program, got); err != nil || string(got) != "413" {
		t.Errorf("%q, %v", got, err)
	}
	Shut(program)
	if j := <-done; j.err != nil || j.got != 3 {
		t.Errorf("%+v", j)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	program, server, done := join(ctx, t, nil, nil)
	cancel()
	<-done
	for _, c := range []net.Conn{program, server} {
		if got, reset := read(c); got != "" || !reset {
			t.Errorf("%q, reset %v", got, reset)
		}
	}
}

type refused struct{}

func (refused) Error() string { return "refused" }
func (refused) Refusal()      {}

// TestPreludes: the bytes of a buffer come first; a refusal resets both connections, and another error does not.
func TestPreludes(t *testing.T) {
	r := bufio.NewReader(strings.NewReader("first "))
	_, _ = r.Peek(1)
	program, server, done := join(t.Context(), t, Rest(r), Rest(bufio.NewReader(strings.NewReader(""))))
	write(t, program, "second")
	_ = program.CloseWrite()
	if got, _ := read(server); got != "first second" {
		t.Errorf("%q", got)
	}
	Shut(server)
	if j := <-done; j.sent != 12 || j.err != nil {
		t.Errorf("%+v", j)
	}

	program, server, done = join(t.Context(), t, func(io.Writer) (int64, error) { return 0, refused{} }, nil)
	if j := <-done; !errors.Is(j.err, refused{}) {
		t.Errorf("%+v", j)
	}
	for _, c := range []net.Conn{program, server} {
		if got, reset := read(c); got != "" || !reset {
			t.Errorf("%q, reset %v", got, reset)
		}
	}
}

func TestDead(t *testing.T) {
	ours, peer := connect(t)
	raw, err := RawConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	readable := func() (is bool) {
		_ = raw.Control(func(fd uintptr) { is = Readable(fd) })
		return is
	}
	if readable() || Dead(ours) {
		t.Error("a quiet connection is readable, or dead")
	}
	_ = peer.CloseWrite()
	if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if !readable() || Dead(ours) {
		t.Error("a half-closed connection is not readable, or dead")
	}
	Reset(peer)
	if !UntilDead(ours) || !Dead(ours) {
		t.Error("a reset connection is not dead")
	}
	Shut(ours)
	if UntilDead(ours) || Dead(ours) {
		t.Error("a connection that was closed here counts as its peer's")
	}
	if c, _ := net.Pipe(); Dead(c) || UntilDead(c) {
		t.Error("a connection without a descriptor is dead")
	}
}
