package pool

import (
	"os"
	"sync"
	"time"

	"github.com/sandboxrun/sandboxrun/container/machine"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Decision is a plan, with what it was made from.
type Decision struct {
	Policy *policy.Policy
	Host   *spec.Host
	Plan   *spec.Plan
	Trace  *hostfs.Trace // of what the plan depends on in the host's files
	Env    map[string]string
	// Trusted are the paths of what the command believes beside the policy: its state directory and the like.
	Trusted []string
}

// settleWithin is how long a pool waits for files that are just being changed.
const settleWithin = 2 * time.Second

// decide makes a decision from files that have been as they are for a moment, so that the next change of them shows.
func (p *Pool) decide() (*Decision, error) {
	for end := time.Now().Add(settleWithin); ; time.Sleep(5 * time.Millisecond) {
		begun := time.Now()
		d, err := p.config.Decide()
		if err != nil {
			return nil, err
		}
		for _, path := range d.Policy.Paths {
			d.Trace.Read(path)
		}
		for _, path := range d.Trusted {
			d.Trace.Follow(path)
		}
		if self, err := os.Executable(); err == nil {
			d.Trace.Follow(self)
		}
		if d.Trace.Settled(begun) && d.Trace.Same() || time.Now().After(end) {
			return d, nil
		}
	}
}

// means reports whether the policy means the same to a caller with these variables.
func (d *Decision) means(env map[string]string) bool {
	for _, list := range []map[string]string{d.Env, env} {
		for name := range list {
			was, had := d.Env[name]
			is, has := env[name]
			if (was != is || had != has) && spec.DependsOn(d.Policy, name) {
				return false
			}
		}
	}
	return true
}

// holds reports whether the policy would be decided now as it was; the error is errChanged.
func (d *Decision) holds() error { return d.compare()() }

// compare begins to find that out, and gives what helps with it and has the answer.
func (d *Decision) compare() func() error {
	same := d.Trace.Ask()
	return sync.OnceValue(func() error {
		if !same() || machine.ProbeCore() != d.Host.Core {
			return errChanged
		}
		return nil
	})
}
