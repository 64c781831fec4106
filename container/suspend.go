package container

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

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
func (r *Running) OnSuspend(f func()) { r.suspend.Store(&f) }

// suspends says whether a key that the user typed would stop the program if it were in the caller's session. The kernel
// does not stop it: nobody in its own session could continue it. A shell inside, which has jobs of its own and ignores the
// signal, gets the key, and so does a program that reads every key itself.
func (r *Running) suspends(key byte) bool {
	suspends := false
	_ = control(r.terminal, func(fd int) error {
		t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil || t.Lflag&unix.ISIG == 0 || t.Cc[unix.VSUSP] == 0 || t.Cc[unix.VSUSP] != key {
			return err
		}
		group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		pid := r.process.PID()
		suspends = err == nil && pid > 0 && group == pid && !ignores(pid, unix.SIGTSTP)
		return err
	})
	return suspends
}

// ignores says whether a process ignores a signal.
func ignores(pid int, sig unix.Signal) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	_, text, _ := strings.Cut(string(data), "\nSigIgn:")
	text, _, _ = strings.Cut(text, "\n")
	mask, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
	return err == nil && mask&(1<<(sig-1)) != 0
}
