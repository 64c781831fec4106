package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
)

// accept takes connections until the listener is closed, hands each to a goroutine of its own, and waits for these.
// When all slots are taken, full says what becomes of a connection: true makes it wait, and those behind it in the
// kernel's queue, as they would at any server that is slow to accept.
func (s *server) accept(ctx context.Context, ln *net.TCPListener, full func(context.Context, *net.TCPConn) bool, handle func(context.Context, *net.TCPConn)) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		s.pace.wait(ctx)
		c, err := ln.AcceptTCP()
		if err != nil {
			if retry(ctx, err) {
				continue
			}
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		if !s.admit(ctx, c, full) {
			s.notes.brake.wait(ctx, smallRefusal)
			continue
		}
		wg.Go(func() {
			defer func() {
				if <-s.slots; len(s.slots) == 0 {
					s.rest.Reset(restAfter)
				}
			}()
			stop := context.AfterFunc(ctx, func() { reset(c) })
			defer stop()
			handle(ctx, c)
		})
	}
}

// admit takes a slot for a connection. It is false where the connection has been closed instead.
func (s *server) admit(ctx context.Context, c *net.TCPConn, full func(context.Context, *net.TCPConn) bool) bool {
	select {
	case s.slots <- struct{}{}:
		return true
	default:
	}
	if !full(ctx, c) {
		return false
	}
	select {
	case s.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		reset(c)
		return false
	}
}

// restAfter is how long after the last connection what many have left behind is released. The pipes that splice(2) goes
// through are kept for the next connections by the Go runtime, which closes them when it collects garbage: that is minutes away
// in a process that does nothing.
const restAfter = time.Second

func (s *server) tidy() {
	if len(s.slots) == 0 {
		runtime.GC()         // the pool's pipes are old now
		debug.FreeOSMemory() // and released now
	}
}

func wait(context.Context, *net.TCPConn) bool { return true }

// retry says whether accepting may work again, after a pause. Descriptors and memory come back when connections end.
func retry(ctx context.Context, err error) bool {
	for _, passing := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, passing) {
			select {
			case <-time.After(50 * time.Millisecond):
				return true
			case <-ctx.Done():
			}
		}
	}
	return false
}

// reset closes a connection so that its peer hears of it as ECONNRESET. Right after accept it is the nearest that there
// is to a connection that was refused.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // it fails only where the connection is gone
	}
	shut(c)
}

// shut closes what no error of closing says anything about: nothing is buffered in a socket that its peer could still be told of.
func shut(c io.Closer) { c.Close() }
