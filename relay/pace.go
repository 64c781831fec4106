package relay

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A program must not make the relay use much processor time with little of its own. The relay slows it down by not reading from it, and
// not accepting, for a while.
const (
	refusalRate  = 50  // what was refused or has failed, in a second
	refusalBurst = 200 // at once: a package manager that looks for what is not there
	smallRefusal = 0.1 // of a refused DNS query, or of a connection that is cut off: less work
	workBurst    = time.Second
)

// brake limits the rate of refused and failed requests, for all connections of the sandbox together.
type brake struct {
	off    bool // for fuzzers
	mu     sync.Mutex
	tokens float64
	last   time.Time
}

// wait delays the caller after an answer. Its cost counts against the rate of later calls.
func (b *brake) wait(ctx context.Context, cost float64) {
	if b.off {
		return
	}
	if d := b.take(time.Now(), cost); d > 0 {
		pause(ctx, d)
	}
}

func (b *brake) take(now time.Time, cost float64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last.IsZero() {
		b.tokens = refusalBurst
	} else {
		b.tokens = min(refusalBurst, b.tokens+refusalRate*now.Sub(b.last).Seconds())
	}
	b.last = now
	b.tokens -= cost
	return time.Duration(-b.tokens / refusalRate * float64(time.Second))
}

// pacer keeps this process to a share of a processor, where the policy limits processor time. Bytes that are copied count, but
// do not wait: that a connection can be slow its program knows, and it ends.
type pacer struct {
	share float64 // seconds of processor time in a second; 0: no limit
	used  func() time.Duration

	mu   sync.Mutex
	debt time.Duration // processor time that has been used and not been regained
	seen time.Duration
	last time.Time
}

// wait is called before a connection, request or query is looked at.
func (p *pacer) wait(ctx context.Context) {
	if p.share > 0 {
		if d := p.take(time.Now()); d > 0 {
			pause(ctx, d)
		}
	}
}

func (p *pacer) take(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	used := p.used()
	if p.last.IsZero() {
		p.seen, p.last = used, now
	}
	p.debt = max(0, p.debt-time.Duration(p.share*float64(now.Sub(p.last)))) + used - p.seen
	p.seen, p.last = used, now
	return time.Duration(float64(p.debt-workBurst) / p.share)
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
