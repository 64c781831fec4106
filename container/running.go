package container

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/disk"
	"github.com/sandboxrun/sandboxrun/container/relayproc"
	"github.com/sandboxrun/sandboxrun/container/stats"
)

// Package stats reads what runs in a sandbox. This file gives it what it needs of the sandbox.

// Processes lists what runs in the sandbox, less our own process 1 and reapers.
func (sb *Sandbox) Processes() ([]stats.Proc, error) {
	list, err := stats.Processes(sb.state.PID, sb.store.detached(sb.state.ID).Namespaces())
	if errors.Is(err, stats.ErrEnded) {
		return nil, sb.lost()
	}
	return list, err
}

// Meter begins to look at what the sandbox uses. The Sandbox must stay open meanwhile.
func (sb *Sandbox) Meter() *stats.Meter {
	st := sb.state
	l, held := &st.Launch, &st.Launch.Held
	about := stats.Sandbox{
		ID: st.ID, PID: st.PID, Init: sb.init, Limits: l.Limits, Reported: st.Limits, Groups: held.Groups, Tmpfs: held.Tmpfs,
		Inside: sb.inside, Lost: sb.lost,
		Network: func() (*relayproc.Stats, error) { return relayproc.Counts(sb.store.root, st.ID) },
	}
	if l.Limits.Disk > 0 {
		about.Disk = disk.NewWatch(held.Write, held.Disk, l.Limits.Disk)
	}
	return stats.New(about)
}

// Kill sends a signal to the program of every exec that runs in the sandbox, and says how many there were. Processes
// that the programs have started end with them.
func (sb *Sandbox) Kill(sig unix.Signal) (int, error) { return sb.kill(sig, "") }

// KillExec does the same to one detached exec. One that has ended is no error.
func (sb *Sandbox) KillExec(sig unix.Signal, exec string) (int, error) {
	d, err := sb.store.Detached(sb.state.ID, exec)
	if err != nil {
		return 0, err
	}
	d.Close()
	return sb.kill(sig, d.Name)
}

func (sb *Sandbox) kill(sig unix.Signal, exec string) (int, error) {
	list, err := sb.Processes()
	if err != nil {
		return 0, err
	}
	list = slices.DeleteFunc(list, func(p stats.Proc) bool { return p.Inside != 2 || exec != "" && p.Exec != exec })
	for _, p := range list {
		if err := p.Signal(sig); err != nil {
			return 0, err
		}
	}
	return len(list), nil
}
