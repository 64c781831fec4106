// Package pace delays a program that makes the relay work: by the rate of what is refused, and by the relay's share of processor time.
// It imports nothing of ours.
package pace

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A program must not make the relay use much processor time with little of its own. The relay slows it down by not reading from it, and
// not accepting, for a while.
const (
	RefusalRate  = 50  // what was refused or has failed, in a second
	RefusalBurst = 200 // at once: a package manager that looks for what is not there
	SmallRefusal = 0.1 // of a refused DNS query, or of a connection that is cut off: less work
	workBurst    = time.Second
)

// Brake limits the rate of refused and failed requests, for all connections of the sandbox together.
type Brake struct {
	Off    bool // for fuzzers
	mu     sync.Mutex
	tokens float64
	last   time.Time
}

// Wait delays the caller after an answer. Its cost counts against the rate of later calls.
func (b *Brake) Wait(ctx context.Context, cost float64) {
	if b.Off {
		return
	}
	if d := b.take(time.Now(), cost); d > 0 {
		pause(ctx, d)
	}
}

func (b *Brake) take(now time.Time, cost float64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last.IsZero() {
		b.tokens = RefusalBurst
	} else {
		b.tokens = min(RefusalBurst, b.tokens+RefusalRate*now.Sub(b.last).Seconds())
	}
	b.last = now
	b.tokens -= cost
	return time.Duration(-b.tokens / RefusalRate * float64(time.Second))
}

// Pacer keeps this process to a share of a processor, where the policy limits processor time. Bytes that are copied count, but
// do not wait: that a connection can be slow its program knows, and it ends.
type Pacer struct {
	Share float64              // seconds of processor time in a second; 0: no limit
	Used  func() time.Duration // processor time that the process has used

	mu   sync.Mutex
	debt time.Duration // processor time that has been used and not been regained
	seen time.Duration
	last time.Time
}

// Wait is called before a connection, request or query is looked at.
func (p *Pacer) Wait(ctx context.Context) {
	if p.Share > 0 {
		if d := p.take(time.Now()); d > 0 {
			pause(ctx, d)
		}
	}
}

func (p *Pacer) take(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	used := p.Used()
	if p.last.IsZero() {
		p.seen, p.last = used, now
	}
	p.debt = max(0, p.debt-time.Duration(p.Share*float64(now.Sub(p.last)))) + used - p.seen
	p.seen, p.last = used, now
	return time.Duration(float64(p.debt-workBurst) / p.Share)
}

// ProcessorTime is what this process has used.
func ProcessorTime() time.Duration {
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
