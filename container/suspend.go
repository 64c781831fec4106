package container

import (
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/stream"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// Suspended is an exec that was stopped by Ctrl-Z.
type Suspended struct {
	r    *Running
	list *forkexec.Stopped
}

// Suspend stops every process of the exec. The wall clock goes on, as that of timeout(1) does.
func (r *Running) Suspend() *Suspended { return &Suspended{r, r.process.Stop()} }

// Continue lets go on what Suspend has stopped. A program that was stopped was not idle.
func (s *Suspended) Continue() {
	s.r.process.Output()
	s.list.Continue()
	if s.r.HasTerminal() {
		_ = s.r.process.SignalGroup(unix.SIGWINCH) // it draws its screen again
	}
}

// StopSelf is forkexec.StopSelf.
func StopSelf(group bool) { forkexec.StopSelf(group) }

// ClosedStreams is forkexec.ClosedStreams.
func ClosedStreams() int { return forkexec.ClosedStreams() }

// OnSuspend has f called when the user types Ctrl-Z at a program that has a terminal of its own.
func (r *Running) OnSuspend(f func()) { r.streams.OnSuspend(f) }

// Resize sets the size of the program's terminal; the program gets SIGWINCH.
func (r *Running) Resize(s stream.Size) error { return r.streams.Resize(s) }

// HasTerminal reports whether the program was given a terminal.
func (r *Running) HasTerminal() bool { return r.streams.HasTerminal() }
