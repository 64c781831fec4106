package container

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/launch"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// HeadStart is a sandbox whose process 1 starts while its plan is still being made: the two take the longest of all that a start does, and
// process 1 depends on little of the plan. It becomes a sandbox by Create, or nothing by Discard.
type HeadStart struct {
	m        *making
	reserved chan struct{} // closed when the sandbox has its directory, or cannot have one
	started  chan struct{} // closed when process 1 runs, or cannot be started
	err      error         // why not; to be read after that
	sweep    error         // of the sweep, which stops nothing
}

// Begin removes the leftovers of dead sandboxes, reserves an id, and starts process 1 for a plan that is likely to have this frame. It does
// not wait for that. What goes wrong is an error of Create.
func (s *Store) Begin(id string, h *spec.Host, frame spec.Frame) *HeadStart {
	return s.begin(id, frame, func(b *HeadStart) error {
		// Nothing is written into a state directory that programs could write.
		if err := trust.CheckState(s.path, s.root, h); err != nil {
			return err
		}
		_, b.sweep = s.Sweep()
		return nil
	})
}

func (s *Store) begin(id string, frame spec.Frame, prepare func(*HeadStart) error) *HeadStart {
	b := &HeadStart{
		m:        &making{Sandbox: &Sandbox{store: s, state: &State{ID: id}}},
		reserved: make(chan struct{}), started: make(chan struct{}),
	}
	go func() {
		defer close(b.started)
		err := CheckID(id)
		if err == nil {
			err = prepare(b)
		}
		if err == nil {
			b.m.lock, err = s.reserve(id)
		}
		close(b.reserved)
		if err == nil {
			err = b.m.openDirectory()
		}
		if err == nil {
			err = b.m.launch(frame, os.Geteuid() != 0)
		}
		b.err = err
	}()
	return b
}

// Swept is the error of the sweep: leftovers that could not be removed.
func (b *HeadStart) Swept() error {
	<-b.reserved
	return b.sweep
}

// Create makes it a sandbox. See Store.Create.
func (b *HeadStart) Create(plan *spec.Plan, o Options) (*Sandbox, error) {
	m, err := b.create(plan, o)
	if err != nil {
		b.Discard()
		return nil, diagnose.NoNextBest(err, plan.BestEffort)
	}
	m.release()
	m.store.phase("completion")
	return m.Sandbox, nil
}

func (b *HeadStart) create(plan *spec.Plan, o Options) (*making, error) {
	s := b.m.store
	writable, err := trust.CheckView(s.path, s.root, plan.View)
	if err != nil {
		return nil, err
	}
	of, err := openOwner(o.Owner)
	if err != nil {
		return nil, err
	}
	defer of.Close()
	<-b.reserved
	m := &making{Sandbox: planned(s, b.m.state.ID, plan, o.Owner, writable), plan: plan, head: b}
	if err := m.build(); err != nil {
		return nil, err
	}
	return m, m.complete(of, o)
}

// Discard removes what there is of it. A nil one is none.
func (b *HeadStart) Discard() {
	if b == nil {
		return
	}
	<-b.started
	if b.m.lock != nil { // else it never had a directory
		b.m.discard()
	}
}

// process1 sees to it that the plan's process 1 runs: that of the head start, if it has the plan's frame.
func (m *making) process1(host bool) error {
	frame := m.plan.Frame()
	if m.head == nil {
		return m.launch(frame, host)
	}
	<-m.head.started
	if m.head.err != nil {
		return m.head.err
	}
	begun := m.head.m
	m.root, m.lock, m.dir, m.creator = begun.root, begun.lock, begun.dir, begun.creator
	m.init, m.proc, m.child, m.state.PID, m.state.StartTime = begun.init, begun.proc, begun.child, begun.state.PID, begun.state.StartTime
	m.head.m = m
	if begun.frame.Equal(frame) && begun.host == host {
		return nil
	}
	if err := m.unlaunch(); err != nil {
		return err
	}
	return m.launch(frame, host)
}

func (m *making) openDirectory() (err error) {
	if m.root, err = m.store.root.OpenRoot(m.state.ID); err == nil {
		m.dir, err = m.root.Open(".")
	}
	if err != nil {
		return fmt.Errorf("create sandbox: %w", err)
	}
	return nil
}

// launch starts process 1. It ends with the creator until the creator reports that the sandbox is complete.
func (m *making) launch(frame spec.Frame, host bool) error {
	sb := m.Sandbox
	base, err := sb.store.base()
	if err != nil {
		return err
	}
	ours, theirs, err := forkexec.CreatorSocket()
	if err != nil {
		return fmt.Errorf("create sandbox: %w", err)
	}
	defer theirs.Close()
	m.creator, m.frame, m.host = ours, frame, host
	p := launch.Process1{
		ID: sb.state.ID, Store: sb.store.path, Root: sb.store.root, Base: base, Cgroup: cgroupName(sb.store.path, sb.state.ID), Host: host,
		Frame: frame, Lock: m.lock, Creator: theirs,
	}
	if sb.state.PID, sb.state.StartTime, err = p.Start(); err != nil {
		return err
	}
	sb.state.StartTime = procfs.SinceBoot(sb.state.StartTime)
	sb.child = true
	if err := sb.attach(); err != nil {
		return fail(fault.SandboxUnavailable, "", "create sandbox: %w", err)
	}
	return nil
}

// unlaunch ends a process 1 that the plan cannot have.
func (m *making) unlaunch() error {
	m.end()
	for _, f := range []*os.File{m.creator, m.init, m.proc} {
		f.Close()
	}
	m.creator, m.init, m.proc, m.child = nil, nil, nil, false
	if err := m.store.root.RemoveAll(filepath.Join(m.state.ID, launch.Dir)); err != nil {
		return fail(fault.StateUnusable, "", "create sandbox: %w", fault.Cause(err))
	}
	return nil
}
