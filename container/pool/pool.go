package pool

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/sandboxrun/sandboxrun/container"
)

// Config is what a pool is made with.
type Config struct {
	Store *container.Store
	Size  int // how many sandboxes are kept ready
	// Decide makes a plan from the policy and the machine as they are now.
	Decide func() (*Decision, error)
	// Policy is the policy's absolute path, or a preset's name; empty: the default policy with Dir as the workspace.
	Policy, Dir string
	Versions    map[string]string // see container.Options
	// Trouble gets the error of a sandbox that cannot be made, or cannot be removed after its run. Where none can be made none is ready.
	Trouble func(error)
}

// Pool is a pool of this process.
type Pool struct {
	config Config
	mu     sync.Mutex
	ready  []*entry // the oldest first
	busy   int      // claims whose programs run, or that are just being answered
	closed bool
	once   map[*net.UnixConn]chan struct{} // of those that were given for a run; closed when they are removed
	wanted chan struct{}                   // there is room for more
	filled sync.WaitGroup
}

// entry is a sandbox that is ready, and why it is as it is.
type entry struct {
	*container.Ready
	decided *Decision
	made    circumstances // of this process, when it was built
}

// New fills a pool and keeps it full until Close. An error is that of the first sandbox that cannot be made.
func New(c Config) (*Pool, error) {
	p := &Pool{config: c, wanted: make(chan struct{}, 1), once: map[*net.UnixConn]chan struct{}{}}
	for range c.Size {
		e, err := p.build()
		if err != nil {
			p.Close()
			return nil, err
		}
		p.ready = append(p.ready, e)
	}
	p.filled.Go(p.refill)
	return p, nil
}

func (p *Pool) build() (*entry, error) {
	d, err := p.decide()
	if err != nil {
		return nil, err
	}
	made, err := ownCircumstances()
	if err != nil {
		return nil, err
	}
	r, err := p.config.Store.Prepare(d.Plan)
	if err != nil {
		return nil, err
	}
	return &entry{r, d, made}, nil
}

// again is how long a pool waits after a sandbox could not be made.
const again = time.Second

// refill builds what is missing, one after the other and, for as long as some are ready, when nobody waits for a program: who runs
// programs needs the processors more.
func (p *Pool) refill() {
	for range p.wanted {
		for p.lacks() {
			for end := time.Now().Add(longestWait); p.shouldWait() && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			e, err := p.build()
			if err != nil {
				p.config.Trouble(err)
				time.Sleep(again)
				continue
			}
			p.mu.Lock()
			if p.closed {
				e.Discard()
			} else {
				p.ready = append(p.ready, e)
			}
			p.mu.Unlock()
		}
	}
}

// longestWait is how long programs that run can put a refill off.
const longestWait = 50 * time.Millisecond

func (p *Pool) shouldWait() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.closed && p.busy > 0 && len(p.ready) > 0
}

// answering counts a claim, until the function that it returns is called.
func (p *Pool) answering() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.busy--
	})
}

func (p *Pool) lacks() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.closed && len(p.ready) < p.config.Size
}

// pop takes the oldest.
func (p *Pool) pop() *entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.ready) == 0 {
		return nil
	}
	e := p.ready[0]
	p.ready = p.ready[1:]
	return e
}

// putBack returns one that was not handed over.
func (p *Pool) putBack(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		e.Discard()
		return
	}
	p.ready = append([]*entry{e}, p.ready...)
}

// more has what was taken replaced.
func (p *Pool) more() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		select {
		case p.wanted <- struct{}{}:
		default: // it will be seen
		}
	}
}

// Ready says how many are ready.
func (p *Pool) Ready() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready)
}

// given is a sandbox that was handed over.
type given struct {
	*container.Sandbox
	decided *Decision
	named   *container.Named // not nil: it is not complete
	confirm func() error     // of that
}

// settle completes what was given early. After an error it is no more.
func (g *given) settle() error {
	named := g.named
	g.named = nil
	var err error
	g.Sandbox, err = named.Complete(g.confirm)
	return err
}

// drop removes what nobody has taken.
func (g *given) drop() {
	switch {
	case g.named != nil:
		g.named.Discard()
	case g.Sandbox != nil:
		_ = g.Delete(nil) // else it ends with its owner, and the next sweep tries again
	}
}

// take hands a sandbox over to who may have it: one that is as it would be if it were made now. What is not is removed. Whether it is takes
// as long as the handing over, so the one goes on beside the other. The sandbox is given when both are done, or early, as soon as it has its id.
func (p *Pool) take(id string, o container.Options, early bool, fits func(*entry) error) (*given, error) {
	defer p.more()
	o.Versions = p.config.Versions
	why := errNone
	for e := p.pop(); e != nil; e = p.pop() {
		if !e.Alive() {
			e.Discard()
			continue
		}
		confirm := e.decided.compare()
		if err := fits(e); err != nil {
			if now, nerr := ownCircumstances(); nerr == nil && now == e.made {
				p.putBack(e) // for others
				return nil, err
			}
			e.Discard()
			why = errChanged
			continue
		}
		g, err := e.give(id, o, early, confirm)
		if errors.Is(err, errChanged) {
			why = err
			continue
		}
		if err == nil {
			return g, nil
		}
		if e.Kept() {
			p.putBack(e)
		}
		return nil, err
	}
	return nil, why
}

func (e *entry) give(id string, o container.Options, early bool, confirm func() error) (*given, error) {
	g := &given{decided: e.decided, confirm: confirm}
	var err error
	if !early {
		g.Sandbox, err = e.HandOver(id, o, confirm)
		return g, err
	}
	if g.named, err = e.Name(id, o); err == nil {
		g.Sandbox = g.named.Sandbox
	}
	return g, err
}

// dropChanged removes the sandboxes that are not as they would be made now.
func (p *Pool) dropChanged() {
	for _, e := range p.all() {
		if e.decided.holds() == nil {
			continue
		}
		if p.withdraw(e) {
			e.Discard()
		}
	}
	p.more()
}

// all are those that are ready.
func (p *Pool) all() []*entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.ready)
}

// withdraw takes one away, unless somebody else has.
func (p *Pool) withdraw(e *entry) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.ready, e)
	if i < 0 {
		return false
	}
	p.ready = slices.Delete(p.ready, i, i+1)
	return true
}

// Take is for this process itself: it hands over a sandbox that is as it would be if it were made now. The error says why there is none.
func (p *Pool) Take(id string, o container.Options) (*container.Sandbox, *Decision, error) {
	g, err := p.take(id, o, false, func(e *entry) error {
		ours, err := ownCircumstances()
		if err != nil {
			return err
		}
		return ours.other(&e.made)
	})
	if err != nil {
		return nil, nil, err
	}
	return g.Sandbox, g.decided, nil
}

// runs counts a sandbox that was given for a run, until the function that it returns is called.
func (p *Pool) runs(conn *net.UnixConn) func() {
	removed := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.once[conn] = removed
	return func() {
		p.mu.Lock()
		delete(p.once, conn)
		p.mu.Unlock()
		close(removed)
	}
}

// awaitRemovals waits for those whose run has ended.
func (p *Pool) awaitRemovals() {
	p.mu.Lock()
	var all []chan struct{}
	for conn, removed := range p.once {
		if raw, err := conn.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				if hungUp(int(fd)) {
					all = append(all, removed)
				}
			})
		}
	}
	p.mu.Unlock()
	for _, removed := range all {
		<-removed
	}
}

// Close ends all that are ready. What was handed over lives on.
func (p *Pool) Close() {
	p.mu.Lock()
	list := p.ready
	p.ready = nil
	if !p.closed {
		p.closed = true
		close(p.wanted)
	}
	p.mu.Unlock()
	p.awaitRemovals()
	p.filled.Wait()
	for _, e := range list {
		e.Discard()
	}
}
