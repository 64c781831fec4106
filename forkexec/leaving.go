package forkexec

import (
	"maps"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Leaving are execs that have been waited for and whose supervisors are on their way out: the kernel takes their namespaces down, which is a
// tenth of an exec. Nobody has to wait for that, where nothing but the namespaces is left.
type Leaving struct {
	mu  sync.Mutex
	all map[*Process]bool
}

// follows has an exec go while its caller goes on.
func (l *Leaving) follows(p *Process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[*Process]bool{}
	}
	l.all[p] = true
	go func() {
		p.abandon()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.all, p)
	}()
}

// Wait waits until nothing is left of those that are leaving now: neither a supervisor nor namespaces nor control groups.
func (l *Leaving) Wait() {
	l.mu.Lock()
	list := slices.Collect(maps.Keys(l.all))
	l.mu.Unlock()
	for _, p := range list {
		<-p.gone
	}
}

// holdsFiles reports whether what goes with an exec's namespaces is more than these: files in memory, which count for the sandbox.
func (c *Command) holdsFiles() bool {
	return len(c.Extra.Steps) > 0 || slices.ContainsFunc(c.Mounts, func(m Mount) bool { return m.Type == "tmpfs" && m.Flags&unix.MS_RDONLY == 0 })
}
