package container

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/build"
	"github.com/sandboxrun/sandboxrun/container/check"
	"github.com/sandboxrun/sandboxrun/container/chmod"
	"github.com/sandboxrun/sandboxrun/container/guard"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/relayproc"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/record"
	"github.com/sandboxrun/sandboxrun/spec"
)

// A sandbox is made in two steps. The first builds it and proves its isolation: then it is ready, and belongs to this process. The
// second gives it its owner, its record and its state, and lets process 1 go. Between the two a pool may keep it (handover.go).

// making is a sandbox that is being made.
type making struct {
	*Sandbox
	plan    *spec.Plan
	root    *os.Root   // its directory
	lock    *os.File   // process 1 has it open too
	creator *os.File   // the socket to process 1
	frame   spec.Frame // that process 1 was started with
	host    bool       // process 1 sees the host's root
	head    *HeadStart // that starts process 1; nil: none
	relay   *relayproc.Process
	filter  []unix.SockFilter // compiled
	short   *forkexec.Launch  // if it was made before the sandbox had its id
	confirm func() error      // nil, or what may still refuse it
	early   bool              // somebody knows of it already
	copied  []byte            // the state
}

// Create builds a sandbox and leaves it ready for Exec. It ends with its owner; without one only Delete ends it.
// Whatever fails, nothing is left behind. Where the plan has a relay, the calling program must be one that answers to
// RelayCommand by Relay.
func (s *Store) Create(id string, plan *spec.Plan, o Options) (*Sandbox, error) {
	return s.Begin(id, func() error { return nil }).Create(plan, o)
}

func planned(s *Store, id string, plan *spec.Plan, of *owner.Owner, writable []string) *Sandbox {
	return &Sandbox{
		store: s, state: newState(id, plan, of), writable: writable, kept: plan.Kept, view: plan.View, policyPaths: plan.PolicyPaths,
	}
}

// openOwner opens the process that a sandbox is to end with; nil where it is to have none.
func openOwner(of *owner.Owner) (*os.File, error) {
	if of == nil {
		return nil, nil
	}
	return owner.Open(of)
}

// build has libcontainer make the namespaces around process 1, builds what programs see in them, and proves that it is as planned.
func (m *making) build() (err error) {
	sb := m.Sandbox
	if m.plan.Exec.Guard != nil {
		if _, err := guard.Library(); err != nil {
			return err
		}
	}
	if err := sb.store.reserveID(sb.state.ID, m.plan); err != nil {
		return err
	}
	sb.store.phase("state directory")
	compiled := compileFilter(m.plan)
	checks := check.New(m.plan.Checks, m.plan.View, sb.store.path)
	m.plan = sb.sabotage(m.plan)
	trees, err := build.OpenTrees(m.plan)
	if err != nil {
		return err
	}
	defer trees.Close()
	around := build.Search(m.plan)
	if err := m.process1(trees == nil); err != nil {
		return err
	}
	sb.store.phase("process 1, by libcontainer")
	if err := sb.enforceLimits(m.plan); err != nil {
		return err
	}
	m.relay, err = relayproc.Start(relayproc.Sandbox{ID: sb.state.ID, Init: sb.init, Dir: sb.dir, Root: m.root, Groups: sb.state.Launch.Held.Groups}, m.plan)
	if err != nil {
		return err
	}
	sb.store.phase("limits and relay")
	go func() { _, _ = json.Marshal(&State{}) }() // finds out how to encode it, which it does once, while the kernel makes files
	if err := sb.furnish(m.plan, trees, build.Await(around, m.plan)); err != nil {
		return err
	}
	sb.store.phase("files")
	if m.filter, err = compiled(); err != nil {
		return fail(fault.SandboxUnavailable, "", "create sandbox: %w", err)
	}
	sb.state.Checks, err = checks.Run(sb.checked(m.filter))
	sb.store.phase("checks")
	if err != nil {
		return err
	}
	return m.writeInit()
}

// furnish builds what programs see.
func (sb *Sandbox) furnish(plan *spec.Plan, trees build.Trees, found *build.Found) error {
	sb.state.Warnings = append(slices.Clip(sb.state.Warnings), found.Warnings()...)
	ops := append(build.Network(plan, sb.state.Launch.Namespaces), build.View(plan, trees, found)...)
	missing, err := forkexec.Build(sb.init, sb.state.Launch.Namespaces, ops)
	if err != nil {
		return build.Explain(err)
	}
	for _, what := range missing {
		sb.state.Warnings = append(sb.state.Warnings, "network: this machine does not allow it: "+what)
	}
	if err := sb.rememberDenied(plan.View); err != nil {
		return err
	}
	return sb.rememberGrants(plan.View)
}

// complete begins the record, writes down what execs need to know, and lets process 1 go, to end with its owner.
func (m *making) complete(of *os.File, o Options) error {
	sb := m.Sandbox
	if err := m.begin(o); err != nil {
		return err
	}
	sealed, err := m.seal()
	if err != nil {
		return err
	}
	defer sealed.Close()
	if !m.early {
		if err := m.keep(); err != nil {
			return err
		}
	}
	if err := m.relay.Serve(sb.state.ID, sb.state.Record); err != nil {
		m.relay = nil
		return err
	}
	m.relay = nil
	if err := forkexec.TellProcess1(m.creator, forkexec.Complete, sealed, of); err != nil {
		return fail(fault.SandboxUnavailable, "", "create sandbox: process 1 has ended: %w", err)
	}
	forkexec.AwaitClosed(m.creator)
	if !procfs.PidfdAlive(sb.init) {
		return fail(fault.SandboxUnavailable, "", "create sandbox: process 1 has ended")
	}
	if m.early { // whoever is told of it early does not look for it in the state directory
		if err := m.keep(); err != nil {
			return err
		}
	}
	return m.note()
}

// keep writes the copies of what process 1 holds, unless the sandbox is not to be given.
func (m *making) keep() error {
	if err := m.store.save(m.state.ID, m.copied); err != nil {
		return err
	}
	return m.confirmed()
}

func (m *making) note() error {
	if err := m.noteCreated(); err != nil {
		return fail(fault.StateUnusable, fault.DiskHint, "create sandbox: %w", err)
	}
	return nil
}

// begin begins the record, and prepares what other processes need to use the sandbox.
func (m *making) begin(o Options) (err error) {
	sb := m.Sandbox
	if o.Record != "" { // none is begun for what is not given
		if err := m.confirmed(); err != nil {
			return err
		}
	}
	if err := sb.startRecord(m.plan, o); err != nil {
		return err
	}
	if !o.Once && m.short == nil {
		if m.short, err = sb.shortLaunch(m.filter); err != nil {
			return err
		}
	}
	if sb.state.Record != nil {
		m.short = nil
	}
	if !o.Once && sb.keptData == nil {
		return m.keepView()
	}
	return nil
}

// keepView prepares what commands want to know of what the sandbox shows.
func (m *making) keepView() (err error) {
	m.state.Paths = m.view.Shown()
	if m.keptData, err = json.Marshal(m.kept); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

func (m *making) confirmed() error {
	if m.confirm == nil {
		return nil
	}
	return m.confirm()
}

// discard removes what has been made of a sandbox that is not complete.
func (m *making) discard() {
	m.relay.Abandon()
	m.end()
	m.Close()
	_ = m.store.remove(m.state.ID, &removal{lock: m.lock}, m.state, record.Lost, nil)
	m.release()
}

// release closes what only the making of a sandbox needs.
func (m *making) release() {
	for _, f := range []*os.File{m.lock, m.creator} {
		f.Close()
	}
	if m.root != nil {
		m.root.Close()
	}
}

// compileFilter begins to compile a plan's filter while the kernel makes the namespaces. The function that it returns waits for the end
// of that.
func compileFilter(plan *spec.Plan) func() ([]unix.SockFilter, error) {
	compile := sync.OnceValues(func() ([]unix.SockFilter, error) { return chmod.Filter(plan.Filter, runtime.GOARCH) })
	go compile() //nolint:errcheck // the exec that waits for it gets the error
	return compile
}
