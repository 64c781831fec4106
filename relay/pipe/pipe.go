// Package pipe joins two connections and copies between them, by splice(2) where both are sockets. Each direction ends by itself; a reset
// of one connection becomes a reset of the other. It imports nothing of ours.
package pipe

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// drain is how long bytes of a peer that has closed are still passed on.
const drain = time.Second

// Stream is a connection whose directions end one by one: *net.TCPConn and *net.UnixConn.
type Stream interface {
	net.Conn
	CloseWrite() error
}

// end is one of the two connections of a pair.
type end struct {
	Stream
	fin atomic.Bool // the peer has our FIN
}

// pair joins two connections. Each direction ends by itself: the end of one is passed on as the end of that one, so
// half-closed connections work (armon/go-socks5#9, lima#5264, envoy#47378). A reset is passed on as a reset to the other.
type pair struct {
	in, out end
	ended   atomic.Int32 // directions
	once    sync.Once
}

// Refusal is an error of a Prelude after which both connections are reset.
type Refusal interface {
	error
	Refusal()
}

// Prelude sends the first bytes of one direction: those in a buffer, or those that must be checked before they are sent.
// It returns the number of bytes that it sent. A Refusal resets both connections.
type Prelude func(dst io.Writer) (int64, error)

// Join copies between two connections until both directions have ended, closes them, and gives the bytes that went out
// and came back. The error is a prelude's refusal, or nil: that a peer went away is no failure of ours.
func Join(ctx context.Context, in, out Stream, up, down Prelude) (sent, got int64, err error) {
	p := &pair{in: end{Stream: in}, out: end{Stream: out}}
	stop := context.AfterFunc(ctx, p.abort)
	defer stop()
	var back error
	var wg sync.WaitGroup
	wg.Go(func() { got, back = p.copy(&p.in, &p.out, down) })
	sent, err = p.copy(&p.out, &p.in, up)
	wg.Wait()
	p.close()
	return sent, got, errors.Join(err, back)
}

// copy carries one direction. io.Copy between two sockets is splice(2): no byte comes into this process, and while dst
// takes nothing no more is read from src.
func (p *pair) copy(dst, src *end, first Prelude) (n int64, err error) {
	if first != nil {
		n, err = first(dst.Stream)
	}
	if _, no := errors.AsType[Refusal](err); no {
		p.abort()
		p.ended.Add(1)
		return n, err
	}
	if err == nil {
		var m int64
		m, err = io.Copy(dst.Stream, src.Stream)
		n += m
	}
	switch {
	case err != nil:
		p.broken(src)
	case !src.fin.Load() && isTCP(src.Stream) && Dead(src.Stream):
		p.abort() // it was a reset, of which the other direction's writer got the error
	default:
		dst.fin.Store(true)
		_ = dst.CloseWrite() // it fails where dst is gone; its reader or writer will notice
		if p.ended.Add(1) == 2 {
			p.close()
		} else if isTCP(src.Stream) && UntilDead(src.Stream) {
			p.abort() // first half-closed, then reset: nobody would read that any more
		}
		return n, nil
	}
	p.ended.Add(1)
	return n, nil
}

// broken ends the pair after an error. Where the source is gone that is at once. Where it is the destination, the other
// direction first passes on what is left of it: a server that refuses a request sends its answer and closes, and the
// answer must arrive (nginx answers 413 so).
func (p *pair) broken(src *end) {
	if Dead(src.Stream) {
		p.abort()
	} else {
		time.AfterFunc(drain, p.abort)
	}
}

func (p *pair) abort() {
	p.once.Do(func() {
		Reset(p.in.Stream)
		Reset(p.out.Stream)
	})
}

func (p *pair) close() {
	p.once.Do(func() {
		Shut(p.in.Stream)
		Shut(p.out.Stream)
	})
}

func isTCP(c net.Conn) bool {
	_, ok := c.(*net.TCPConn)
	return ok
}

// Dead reports whether both directions of a connection have ended: by a reset, unless the relay has closed its own.
func Dead(c net.Conn) bool {
	is := false
	if raw, err := RawConn(c); err == nil {
		_ = raw.Control(func(fd uintptr) { is = hungUp(fd) })
	}
	return is
}

// UntilDead waits until a connection whose peer has closed its direction is over, and says whether it saw that: it is false
// where the connection was closed here.
func UntilDead(c net.Conn) bool {
	raw, err := RawConn(c)
	return err == nil && raw.Read(hungUp) == nil
}

// RawConn gives the descriptor of a connection.
func RawConn(c net.Conn) (syscall.RawConn, error) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil, errors.New("it has no descriptor")
	}
	return s.SyscallConn()
}

func hungUp(fd uintptr) bool { return polled(fd, 0) }

// Readable reports whether a read of a descriptor would return at once.
func Readable(fd uintptr) bool { return polled(fd, unix.POLLIN) }

// polled reports whether there is one of these events, an error, or the end of both directions.
func polled(fd uintptr, events int16) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: events}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1
}

// Reset closes a connection with a RST, so that the peer gets ECONNRESET. After accept(2) nothing is closer to a refused connection.
func Reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // it fails only where the connection is gone
	}
	Shut(c)
}

// Shut closes a socket. An error of close(2) has no meaning there, because a socket has no buffered writes of ours.
func Shut(c io.Closer) { c.Close() }

// Rest sends the bytes in the buffer.
func Rest(r *bufio.Reader) Prelude {
	return func(dst io.Writer) (int64, error) {
		b, _ := r.Peek(r.Buffered())
		if len(b) == 0 {
			return 0, nil
		}
		n, err := dst.Write(b)
		return int64(n), err
	}
}
