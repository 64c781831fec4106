package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/build"
	"github.com/sandboxrun/sandboxrun/container/deny"
	"github.com/sandboxrun/sandboxrun/container/journal"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/recording"
	"github.com/sandboxrun/sandboxrun/container/warm"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

const stateVersion = 2

// State is what is kept of a sandbox between commands.
type State struct {
	Version   int          `json:"version"`
	ID        string       `json:"id"`
	PID       int          `json:"pid"`        // process 1, in the PID namespace of the creator
	StartTime uint64       `json:"start_time"` // of process 1, in clock ticks since boot: distinguishes it from a later process with its pid
	Created   time.Time    `json:"created"`
	Owner     *owner.Owner `json:"owner,omitempty"` // nil: none
	// Pool is there where it was built before it was asked for.
	Pool *journal.Pooled `json:"pool,omitempty"`

	// Of the Plan only what later commands need is kept: an exec reads all of this before it can start.
	Name     string              `json:"name,omitempty"`
	Policy   string              `json:"policy"`
	Digest   string              `json:"policy_digest"`
	Network  string              `json:"network"`
	Relay    *spec.Relay         `json:"relay,omitempty"`
	Record   *recording.Location `json:"record,omitempty"`
	Limits   []spec.Limit        `json:"limits,omitempty"`
	Weaker   []spec.Weakness     `json:"weaker,omitempty"`
	Warnings []string            `json:"warnings,omitempty"`
	// BestEffort is as in spec.Plan.
	BestEffort bool           `json:"best_effort,omitempty"`
	Checks     []hooks.Result `json:"checks,omitempty"`
	Launch     Launch         `json:"launch"`
	// Paths are what of the host is where inside. A sandbox for one program has none: see Sandbox.Names.
	Paths rootfs.Names `json:"paths,omitempty"`
}

// Launch is how programs are started in the sandbox.
type Launch struct {
	spec.Exec
	Namespaces int                 `json:"namespaces"`      // unix.CLONE_NEW* of what is joined
	Mounts     []forkexec.Mount    `json:"mounts"`          // that each exec makes for itself
	Steps      []forkexec.ViewStep `json:"steps,omitempty"` // and before these
	Watch      []deny.Watch        `json:"watch,omitempty"`
	Granted    []Granted           `json:"granted,omitempty"`
	Held       Enforcement         `json:"held,omitzero"`
	Nproc      bool                `json:"nproc,omitempty"` // see spec.Host
}

func newState(id string, plan *spec.Plan, owner *owner.Owner) *State {
	return &State{
		Version: stateVersion, ID: id, Created: time.Now().UTC(), Owner: owner,
		Name: plan.Name, Policy: plan.PolicyFile, Digest: plan.PolicyDigest, Network: plan.Network, Relay: plan.Relay,
		Weaker: plan.Weaker, Warnings: plan.Warnings, BestEffort: plan.BestEffort,
		Launch: Launch{
			Exec: plan.Exec, Namespaces: joined(plan), Mounts: build.ExecMounts(plan), Steps: build.ExecSteps(plan), Nproc: plan.Nproc,
		},
	}
}

// Isolated reports whether the checks at its start have shown the sandbox to be isolated.
func (st *State) Isolated() bool { return hooks.Isolated(st.Checks) }

func (s *Store) statePath(id string) string { return filepath.Join(id, "state.json") }

// save writes the state so that a reader sees all of it or nothing.
func (s *Store) save(id string, data []byte) error {
	tmp := s.statePath(id) + ".new"
	f, err := s.root.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = s.root.Rename(tmp, s.statePath(id))
	}
	if err != nil {
		return fail(fault.StateUnusable, fault.DiskHint, "save state: %w", fault.Cause(err))
	}
	return nil
}

// load reads the copy of the state, which is all there is once process 1 has ended.
func (s *Store) load(id string) (*State, error) {
	data, err := s.readOwn(id, "state.json")
	if err != nil {
		return nil, err
	}
	return parseState(id, data)
}

func parseState(id string, data []byte) (*State, error) {
	var st State
	if err := json.Unmarshal(data, &st); err != nil {
		return nil, fmt.Errorf("read state of sandbox %q: %w", id, err)
	}
	if st.Version != stateVersion {
		return nil, fmt.Errorf("read state of sandbox %q: it was made by another version of sandboxrun", id)
	}
	if st.ID != id {
		return nil, fmt.Errorf("read state of sandbox %q: it is that of %q", id, st.ID)
	}
	return &st, nil
}

// Sandbox is a sandbox that exists.
type Sandbox struct {
	store *Store
	state *State
	dir   *os.File // the sandbox's directory
	init  *os.File // pidfd of process 1
	proc  *os.File // /proc/PID of process 1; stays this process' even when its pid is given away
	child bool     // process 1 is our child, and ours to reap

	filter []byte // the compiled seccomp filter
	// The policy, and its files, to decide what one exec sees besides; kept is set where this process has made the sandbox, keptData where it was found.
	kept        *spec.Kept
	keptData    []byte
	policyPaths []string

	writable []string // while it is created: see forkexec.Sealed

	view *rootfs.View // where we have made it

	warm atomic.Pointer[warm.Keeper]

	leaving forkexec.Leaving // its execs that have been waited for
}

// Open finds a sandbox. A process 1 that has ended is an error with the code "sandbox_lost".
func (s *Store) Open(id string) (*Sandbox, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	data, err := s.readOwn(id, "state.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, s.noState(id)
	}
	if _, known := errors.AsType[*Error](err); err != nil && !known {
		err = fail(fault.StateUnusable, fault.DiskHint, "open sandbox %q: %w", id, err)
	}
	if err != nil {
		return nil, err
	}
	st, err := parseState(id, data)
	if err != nil {
		return nil, s.changed(id, "%v", err)
	}
	dir, err := s.root.Open(id)
	if err != nil {
		return nil, s.noState(id)
	}
	sb := &Sandbox{store: s, state: st, dir: dir}
	err = errEnded
	if s.alive(id) {
		if err = sb.attach(); err == nil {
			err = sb.believe(data)
		}
	}
	var e *Error
	switch {
	case err == nil:
		return sb, nil
	case errors.As(err, &e):
	case errors.Is(err, errEnded):
		err = sb.lost()
	default:
		err = fail(fault.SandboxUnavailable, "", "open sandbox %q: %w", id, err)
	}
	sb.Close()
	return nil, err
}

// errEnded says that process 1 is no more. Any other error leaves that open.
var errEnded = errors.New("process 1 has ended")

// endedOr reports whether an error of opening a process means that there is none.
func endedOr(err error) error {
	if procfs.Gone(err) {
		return errEnded
	}
	return fmt.Errorf("open process 1: %w", err)
}

func (s *Store) noState(id string) error {
	if _, err := s.root.Lstat(id); err != nil {
		return fail(fault.NotFound, "sandboxrun list shows those that exist", "there is no sandbox %q", id)
	}
	if sb := s.find(id); sb != nil {
		sb.Close()
		return s.changed(id, "its file state.json is gone")
	}
	if s.alive(id) {
		return fail(fault.NotReady, "wait until its create has returned", "sandbox %q is still being created", id)
	}
	return fail(fault.SandboxLost, "remove what is left: sandboxrun delete "+id, "sandbox %q was never completed", id)
}

func lostHint(st *State) string {
	if st.Owner == nil {
		return "create it again"
	}
	return fmt.Sprintf("its owner was process %d (%s); a sandbox ends with its owner: see create --owner", st.Owner.PID, st.Owner.Name)
}

// lost is the error if process 1 has ended, or is about to.
func (sb *Sandbox) lost() error {
	sb.store.awaitEnd(sb.state.ID)
	if sb.store.alive(sb.state.ID) {
		return fail(fault.SandboxLost, "use it from the container, or the namespaces, where it was made",
			"sandbox %q runs, but its process 1 cannot be found", sb.state.ID)
	}
	return fail(fault.SandboxLost, lostHint(sb.state), "sandbox %q has ended", sb.state.ID)
}

// attach opens process 1 and makes sure that it is the one of the state.
func (sb *Sandbox) attach() error {
	fd, err := unix.PidfdOpen(sb.state.PID, 0)
	if err != nil {
		return endedOr(err)
	}
	pidfd := os.NewFile(uintptr(fd), "pidfd")
	proc, err := os.OpenFile(fmt.Sprintf("/proc/%d", sb.state.PID), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		pidfd.Close()
		return endedOr(err)
	}
	start, err := procfs.StartTime(sb.state.PID)
	switch {
	case err != nil:
		err = endedOr(err)
	case start != sb.state.StartTime || !procfs.PidfdAlive(pidfd):
		err = errEnded
	}
	if err != nil {
		pidfd.Close()
		proc.Close()
		return err
	}
	sb.init, sb.proc = pidfd, proc
	return nil
}

// State returns what is known of the sandbox.
func (sb *Sandbox) State() *State { return sb.state }

// Close releases the handle. The sandbox lives on.
func (sb *Sandbox) Close() {
	sb.warm.Load().Close()
	sb.leaving.Wait()
	for _, f := range []*os.File{sb.dir, sb.init, sb.proc} {
		if f != nil {
			f.Close()
		}
	}
}
