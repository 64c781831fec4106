package forkexec

/*
#include "forkexec.h"
*/
import "C"

// Stopped are the processes of an exec that Process.Stop has stopped.
type Stopped struct{ list C.struct_fx_stopped }

// Stop stops every process of the exec but its reaper. It returns when none runs any more, after a fifth of a second at
// most where one is held up in the kernel.
func (p *Process) Stop() *Stopped {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &Stopped{}
	if !p.released {
		C.fx_stop(&s.list, C.int(p.reaper.Fd()))
	}
	return s
}

// Continue continues what Stop has stopped.
func (s *Stopped) Continue() { C.fx_continue(&s.list) }

// StopSelf stops this process as Ctrl-Z does one that has not asked for the signal, and returns once it has been continued. With group
// it stops its process group too.
func StopSelf(group bool) {
	n := C.int(0)
	if group {
		n = 1
	}
	C.fx_stop_self(n)
}

// PID is the number of the exec's program, or -1 where it has ended.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return -1
	}
	return int(C.fx_pid_of(C.int(p.program.Fd())))
}

// ClosedStreams has a bit for each of the descriptors 0 to 2 that was closed when this process began: 1 for standard input, 2
// for output, 4 for error. The Go runtime opens /dev/null in their place.
func ClosedStreams() int { return int(C.fx_closed_streams) }
