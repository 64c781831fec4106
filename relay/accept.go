package relay

import (
	"context"
	"errors"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/sandboxrun/sandboxrun/relay/pace"
	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

// accept takes connections until the listener is closed, hands each to a goroutine of its own, and waits for these.
// When all slots are taken it calls full. If that returns true, the connection waits for a slot, and later connections wait in the kernel's
// accept queue.
func (s *server) accept(ctx context.Context, ln *net.TCPListener, full func(context.Context, *net.TCPConn) bool, handle func(context.Context, *net.TCPConn)) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		s.pace.Wait(ctx)
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
			s.events.brake.Wait(ctx, pace.SmallRefusal)
			continue
		}
		wg.Go(func() {
			defer func() {
				if <-s.slots; len(s.slots) == 0 {
					s.rest.Reset(restAfter)
				}
			}()
			stop := context.AfterFunc(ctx, func() { pipe.Reset(c) })
			defer stop()
			handle(ctx, c)
		})
	}
}

// admit takes a slot for a connection. It returns false if it has closed the connection instead.
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
		pipe.Reset(c)
		return false
	}
}

// restAfter is the time between the end of the last connection and tidy. The Go runtime pools the pipes of splice(2) and closes them at
// a garbage collection, which an idle process would reach only after minutes.
const restAfter = time.Second

func (s *server) tidy() {
	if len(s.slots) == 0 {
		runtime.GC()         // the pool's pipes are old now
		debug.FreeOSMemory() // and released now
	}
}

func wait(context.Context, *net.TCPConn) bool { return true }

// retry pauses and returns true after an error that ends by itself: descriptors and memory are free again when connections end.
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
