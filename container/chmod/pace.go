package chmod

import (
	"time"

	"golang.org/x/sys/unix"
)

// No limit of a program counts what the launcher does for it. So the launcher bounds that: after a while it works for one part of the time
// and rests for the others. The program waits meanwhile.
const (
	freely = time.Second / 2 // of processor time: for some 20,000 calls
	share  = 10              // then it may take one part in so many of one processor's time
	rest   = 100 * time.Millisecond
)

// pace is how much the launcher has worked.
type pace struct {
	worked time.Duration
	thread time.Duration // of the thread's own processor time, at the last call
}

// after adds the work of one call: of this thread since the last one, to be woken included, and beside it. It says how long to rest then.
func (p *pace) after(thread, beside time.Duration) time.Duration {
	took := thread - p.thread + beside
	p.thread = thread
	p.worked += took
	if p.worked <= freely {
		return 0
	}
	return min(took*(share-1), rest)
}

// threadTime is the processor time that this thread has used.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
