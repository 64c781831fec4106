package container

import (
	"crypto/rand"
	"os"
	"strings"
	"time"

	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/disk"
	"github.com/sandboxrun/sandboxrun/container/journal"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Ready is a sandbox that is built and proven, that has no owner yet, and in which no program has run. It ends with this process.
type Ready struct {
	*making
	Built time.Time // when its checks had been made
}

// Prepare builds a sandbox for HandOver. Whatever fails, nothing is left behind.
func (s *Store) Prepare(plan *spec.Plan) (*Ready, error) {
	writable, err := trust.CheckView(s.path, s.root, plan.View)
	if err != nil {
		return nil, err
	}
	name := readyPrefix + strings.ToLower(rand.Text())
	lock, err := s.tryReserve(name)
	if err != nil {
		return nil, err
	}
	m := &making{Sandbox: planned(s, name, plan, nil, writable), plan: plan, lock: lock}
	if err = m.openDirectory(); err == nil {
		err = m.build()
	}
	if err == nil {
		err = m.keepReady()
	}
	if err != nil {
		m.discard()
		return nil, diagnose.NoNextBest(err, plan.BestEffort)
	}
	return &Ready{m, time.Now()}, nil
}

// keepReady has process 1 hold what other launchers want to know of a sandbox: what it lets programs write. And how to start a plain exec, for
// whoever prepares one before the sandbox is complete.
func (m *making) keepReady() error {
	sealed := forkexec.Sealed{ID: m.state.ID, Policy: m.plan.PolicyPaths, Writable: m.writable}
	var err error
	if sealed.StoreDev, sealed.StoreIno, err = m.store.identity(); err != nil {
		return err
	}
	if m.short, err = m.shortLaunch(m.filter); err != nil {
		return err
	}
	if m.short != nil {
		sealed.Launch = m.short.Encode()
	}
	f, err := sealed.File()
	if err != nil {
		return err
	}
	defer f.Close()
	if err := m.keepView(); err != nil {
		return err
	}
	return forkexec.TellProcess1(m.creator, forkexec.Ready, f, nil)
}

// Alive reports whether its process 1 runs.
func (r *Ready) Alive() bool { return procfs.PidfdAlive(r.init) }

// Kept reports whether HandOver has left it ready.
func (r *Ready) Kept() bool { return strings.HasPrefix(r.state.ID, readyPrefix) }

// Warnings are the warnings for its user.
func (r *Ready) Warnings() []string { return r.state.Warnings }

// Discard ends it.
func (r *Ready) Discard() { r.discard() }

// HandOver gives it an id and an owner: it is then as if Create had made it, and says when it was built. It is not given where
// confirm has an error, which is asked as late as can be: it may still be about it. Where the id is in use it stays ready. After any
// other error it is no more.
func (r *Ready) HandOver(id string, o Options, confirm func() error) (*Sandbox, error) {
	n, err := r.Name(id, o)
	if err != nil {
		return nil, err
	}
	return n.complete(confirm)
}

// Named is a sandbox that was ready and has its id: that is all that it has.
type Named struct {
	*Ready
	Was string // what process 1 calls it, until it is complete
	of  *os.File
	o   Options
}

// Name gives it its id, for who can prepare a program before the sandbox is complete. It may not be started before Complete has said so.
func (r *Ready) Name(id string, o Options) (*Named, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	of, err := openOwner(o.Owner)
	if err != nil {
		return nil, err
	}
	n := &Named{r, r.state.ID, of, o}
	if err := r.store.moveReady(n.Was, id); err != nil {
		of.Close()
		return nil, err
	}
	r.state.ID = id
	return n, nil
}

// Complete is the rest of HandOver.
func (n *Named) Complete(confirm func() error) (*Sandbox, error) {
	n.early = true
	return n.complete(confirm)
}

func (n *Named) complete(confirm func() error) (*Sandbox, error) {
	defer n.of.Close()
	st := n.state
	n.confirm, n.short = confirm, renamed(n.short, n.Was, st.ID)
	st.Owner, st.Pool = n.o.Owner, &journal.Pooled{Built: n.Built.UTC(), Claimed: time.Now().UTC()}
	if st.Launch.Limits.Disk > 0 {
		st.Launch.Held.Disk = disk.Measure(st.Launch.Held.Write) // what others have written since is not its own
	}
	if err := n.making.complete(n.of, n.o); err != nil {
		n.discard()
		return nil, err
	}
	n.release()
	return n.Sandbox, nil
}

// AwaitEnd waits until the sandbox, whose process 1 is this process' child, has ended, and removes what its owner has left.
func (sb *Sandbox) AwaitEnd() {
	procfs.PidfdAwait(sb.init)
	sb.end()
	sb.store.awaitEnd(sb.state.ID)
	_, _ = sb.store.sweep(sb.state.ID) // the next sweep tries again
	sb.Close()
}
