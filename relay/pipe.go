package relay

import (
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

// stream is a connection whose directions end one by one: *net.TCPConn and *net.UnixConn.
type stream interface {
	net.Conn
	CloseWrite() error
}

// end is one of the two connections of a pair.
type end struct {
	stream
	fin atomic.Bool // we have told the peer that nothing more comes
}

// pair joins two connections. Each direction ends by itself: the end of one is passed on as the end of that one, so
// half-closed connections work (armon/go-socks5#9, lima#5264, envoy#47378). A reset is passed on as a reset to the other.
type pair struct {
	in, out end
	ended   atomic.Int32 // directions
	once    sync.Once
}

// prelude sends the first bytes of one direction: those in a buffer, or those that must be checked before they are sent.
// It returns the number of bytes that it sent. A *refusal resets both connections.
type prelude func(dst io.Writer) (int64, error)

// join copies between two connections until both directions have ended, closes them, and gives the bytes that went out
// and came back. The error is a prelude's refusal, or nil: that a peer went away is no failure of ours.
func join(ctx context.Context, in, out stream, up, down prelude) (sent, got int64, err error) {
	p := &pair{in: end{stream: in}, out: end{stream: out}}
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
func (p *pair) copy(dst, src *end, first prelude) (n int64, err error) {
	if first != nil {
		n, err = first(dst.stream)
	}
	if _, no := errors.AsType[*refusal](err); no {
		p.abort()
		p.ended.Add(1)
		return n, err
	}
	if err == nil {
		var m int64
		m, err = io.Copy(dst.stream, src.stream)
		n += m
	}
	switch {
	case err != nil:
		p.broken(src)
	case !src.fin.Load() && isTCP(src.stream) && dead(src.stream):
		p.abort() // it was a reset, of which the other direction's writer got the error
	default:
		dst.fin.Store(true)
		_ = dst.CloseWrite() // it fails where dst is gone; whoever reads it or writes to it will notice
		if p.ended.Add(1) == 2 {
			p.close()
		} else if isTCP(src.stream) && untilDead(src.stream) {
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
	if dead(src.stream) {
		p.abort()
	} else {
		time.AfterFunc(drain, p.abort)
	}
}

func (p *pair) abort() {
	p.once.Do(func() {
		reset(p.in.stream)
		reset(p.out.stream)
	})
}

func (p *pair) close() {
	p.once.Do(func() {
		shut(p.in.stream)
		shut(p.out.stream)
	})
}

func isTCP(c net.Conn) bool {
	_, ok := c.(*net.TCPConn)
	return ok
}

// dead reports whether both directions of a connection have ended: by a reset, unless the relay has closed its own.
func dead(c net.Conn) bool {
	is := false
	if raw, err := rawConn(c); err == nil {
		_ = raw.Control(func(fd uintptr) { is = hungUp(fd) })
	}
	return is
}

// untilDead waits until a connection whose peer has closed its direction is over, and says whether it saw that: it is false
// where the connection was closed here.
func untilDead(c net.Conn) bool {
	raw, err := rawConn(c)
	return err == nil && raw.Read(hungUp) == nil
}

func rawConn(c net.Conn) (syscall.RawConn, error) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil, errors.New("it has no descriptor")
	}
	return s.SyscallConn()
}

func hungUp(fd uintptr) bool { return polled(fd, 0) }

func readable(fd uintptr) bool { return polled(fd, unix.POLLIN) }

// polled reports whether there is one of these events, an error, or the end of both directions.
func polled(fd uintptr, events int16) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: events}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1
}
