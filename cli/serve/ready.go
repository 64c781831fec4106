package serve

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/sandboxrun/sandboxrun/cli/plan"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/pool"
)

const (
	// largestReady is how many sandboxes of one policy may be kept ready.
	largestReady = 64
	// readyPolicies is for how many policies sandboxes are kept ready: those that were asked for last.
	readyPolicies = 4
	// knownPolicies is how many are remembered, to tell the ones that are asked for again.
	knownPolicies = 32
)

// ready keeps sandboxes ready of the policies that clients ask for again and again.
type ready struct {
	open func(plan.Source) (*pool.Pool, error)

	mu      sync.Mutex
	known   []*readyPolicy // the one that was asked for last first
	closed  bool
	filling sync.WaitGroup
}

type readyPolicy struct {
	key       string
	again     bool       // it has been asked for again
	pool      *pool.Pool // nil: there is none, or not yet
	forgotten bool
}

// key is the same for those parameters that mean the same policy.
func (q *policyParams) key() (string, error) {
	data, err := json.Marshal(q)
	return string(data), err
}

// take gives a sandbox that is as it would be if it were made now, or nil.
func (r *ready) take(key string, from plan.Source, id string, o container.Options) (*container.Sandbox, *pool.Decision) {
	p := r.poolOf(key, from)
	if p == nil {
		return nil, nil
	}
	sb, d, err := p.Take(id, o)
	if err != nil {
		logrus.Info("not one that is ready: ", err)
		return nil, nil
	}
	return sb, d
}

// poolOf is the pool of a policy. When that is asked for again, one is made.
func (r *ready) poolOf(key string, from plan.Source) *pool.Pool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	i := slices.IndexFunc(r.known, func(k *readyPolicy) bool { return k.key == key })
	k := &readyPolicy{key: key}
	if i >= 0 {
		k = r.known[i]
		r.known = slices.Delete(r.known, i, i+1)
		if !k.again {
			k.again = true
			r.filling.Go(func() { r.fill(k, from) })
		}
	}
	r.known = slices.Insert(r.known, 0, k)
	if len(r.known) > knownPolicies {
		last := r.known[knownPolicies]
		last.forgotten = true
		r.drop(last)
		r.known = r.known[:knownPolicies]
	}
	return k.pool
}

func (r *ready) fill(k *readyPolicy, from plan.Source) {
	p, err := r.open(from)
	if err != nil {
		logrus.Info("none is kept ready: ", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k.pool = p
	if r.closed || k.forgotten {
		r.drop(k)
	}
	pools := 0
	for _, other := range r.known {
		if other.pool == nil {
			continue
		}
		if pools++; pools > readyPolicies {
			r.drop(other)
			other.again = false
		}
	}
}

// drop ends those that are ready of a policy.
func (r *ready) drop(k *readyPolicy) {
	if p := k.pool; p != nil {
		k.pool = nil
		r.filling.Go(p.Close)
	}
}

// close ends all that are ready.
func (r *ready) close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.closed = true
	for _, k := range r.known {
		r.drop(k)
	}
	r.mu.Unlock()
	r.filling.Wait()
}
