package caller

import (
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
)

// Timings says what the time of a command went to. A nil one is of a command that is not asked to say so.
type Timings struct {
	begun time.Duration // when this process was loaded
	parts []part
}

type part struct {
	name string
	end  time.Duration
}

// StartTimings begins, with all that was before as the first part.
func StartTimings() *Timings {
	t := &Timings{begun: forkexec.Begun()}
	t.Mark("start of the command")
	return t
}

// Mark ends a part.
func (t *Timings) Mark(name string) {
	if t != nil {
		t.parts = append(t.parts, part{name, monotonic()})
	}
}

// Print writes a line for each part, in the order in which they went on.
func (t *Timings) Print(w io.Writer) {
	if t == nil {
		return
	}
	t.Mark("end of the command")
	last := t.begun
	for _, p := range t.parts {
		fmt.Fprintf(w, "%9.2f ms  %s\n", milliseconds(p.end-last), p.name)
		last = p.end
	}
	fmt.Fprintf(w, "%9.2f ms  in all\n", milliseconds(last-t.begun))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// monotonic is the clock of forkexec.Begun.
func monotonic() time.Duration {
	var at unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &at) // it is always there
	return time.Duration(at.Nano())
}
