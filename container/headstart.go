package container

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandboxrun/sandboxrun/container/build"
	"github.com/sandboxrun/sandboxrun/container/bundle"
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
	frame    chan spec.Frame
	reserved chan struct{} // closed when the sandbox has its directory, or cannot have one
	started  chan struct{} // closed when process 1 runs, or cannot be started
	err      error         // why not; to be read after that
}

// Begin reserves an id, after what has to be done before, and starts process 1 for a plan that is likely to have the frame that Start gives. It
// waits for none of this. What goes wrong is an error of Create.
func (s *Store) Begin(id string, before func() error) *HeadStart {
	b := &HeadStart{
		m:     &making{Sandbox: &Sandbox{store: s, state: &State{ID: id}}},
		frame: make(chan spec.Frame, 1), reserved: make(chan struct{}), started: make(chan struct{}),
	}
	go b.work(before)
	return b
}

func (b *HeadStart) work(before func() error) {
	defer close(b.started)
	b.err = b.reserve(before)
	close(b.reserved)
	if b.err == nil {
		launch.Prepare()
		if frame, ok := <-b.frame; ok {
			b.err = b.m.launch(frame, os.Geteuid() != 0)
		}
	}
}

// reserve makes the sandbox's directory.
func (b *HeadStart) reserve(before func() error) error {
	err := CheckID(b.m.state.ID)
	if err == nil {
		err = before()
	}
	if err == nil {
		b.m.lock, err = b.m.store.reserve(b.m.state.ID)
	}
	if err == nil {
		err = b.m.openDirectory()
	}
	return err
}

// Reserved waits for the sandbox's directory. The error says why there is none.
func (b *HeadStart) Reserved() error {
	if <-b.reserved; b.m.lock == nil {
		return b.err
	}
	return nil
}

// Start starts process 1, if that has not been done.
func (b *HeadStart) Start(frame spec.Frame) {
	select {
	case b.frame <- frame:
	default:
	}
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
	if err := b.Reserved(); err != nil {
		return nil, err
	}
	b.Start(plan.Frame())
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
	close(b.frame)
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
	if <-m.head.started; m.head.err != nil {
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
	base, err := bundle.Base(sb.store.root, sb.store.path, build.Dirs(), sb.store.lock)
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
