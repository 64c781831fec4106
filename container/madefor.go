package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/flock"
	"github.com/sandboxrun/sandboxrun/container/made"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// This file has what is made on disk for a sandbox: package made. A note of it in the state directory is written first, and locked until the sandbox
// is there. So what a creator has made that was killed is found by a sweep.

const madePrefix = ".made-"

// Made is what was made for a sandbox that is about to be created.
type Made struct {
	store    *Store
	id       string
	note     *os.File
	record   made.Record
	Warnings []string
}

// Makes reports whether a policy wants something to be made on disk for each sandbox.
func Makes(p *policy.Policy) bool {
	w := p.Files.Workspace
	return w != nil && w.Source == rootfs.SourceDisk || slices.ContainsFunc(p.Files.Binds, func(b rootfs.Bind) bool { return b.Copy })
}

// Make makes what a policy wants on disk, and changes it to name that. plan is what the policy became before: it says what is
// denied, and where links lead. Without anything to be made it gives nil.
func (s *Store) Make(id string, p *policy.Policy, plan *spec.Plan) (_ *Made, err error) {
	if !Makes(p) {
		return nil, nil
	}
	w := p.Files.Workspace
	if err := CheckID(id); err != nil {
		return nil, err
	}
	parent := made.Parent
	if w != nil && w.Parent != "" {
		parent = w.Parent
	}
	m := &Made{store: s, id: id, record: made.Name(parent)}
	if m.note, err = s.noteMade(id); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = m.Discard() // a sweep will find it
		}
	}()
	if err := m.save(); err != nil {
		return nil, err
	}
	base, err := m.record.Mkdir()
	if err != nil {
		return nil, err
	}
	defer base.Close()
	if err := m.save(); err != nil {
		return nil, err
	}
	return m, m.fill(base, p, plan)
}

// fill makes what is in the directory.
func (m *Made) fill(base *os.File, p *policy.Policy, plan *spec.Plan) error {
	uid, gid := -1, -1 // the caller's own; a mount of root's shows them as the program's
	if plan.Exec.UID != 0 && !plan.Exec.OwnID {
		uid, gid = plan.Exec.UID, plan.Exec.GID
	}
	if w := p.Files.Workspace; w != nil && w.Source == rootfs.SourceDisk {
		if err := made.Dir(base, "workspace", uid, gid); err != nil {
			return err
		}
		if err := points(base, w.Path, plan.View, uid, gid); err != nil {
			return err
		}
		on := *w
		on.Source = filepath.Join(m.record.Path, "workspace")
		p.Files.Workspace = &on
	}
	return m.copies(base, p, plan, uid, gid)
}

// copies makes those of copied binds.
func (m *Made) copies(base *os.File, p *policy.Policy, plan *spec.Plan, uid, gid int) error {
	p.Files.Binds = slices.Clone(p.Files.Binds)
	for i := range p.Files.Binds {
		b := &p.Files.Binds[i]
		at := slices.IndexFunc(plan.View.Mounts, func(v rootfs.Mount) bool {
			return v.Kind == rootfs.MountBind && v.From == b.From && v.Source != ""
		})
		if !b.Copy || at < 0 { // it may be skipped, since it is not there
			continue
		}
		name, source := fmt.Sprintf("copy-%d", i), plan.View.Mounts[at].Source
		dropped, err := made.Copy(base, name, source, uid, gid, deniedIn(plan.View, source))
		if err != nil {
			return err
		}
		for _, d := range dropped {
			m.Warnings = append(m.Warnings, fmt.Sprintf("%s: not copied: %q: %s", b.From, d.Path, d.Why))
		}
		b.Source, b.Writable = filepath.Join(m.record.Path, name), true
	}
	return nil
}

// points makes what the view mounts on in a workspace: it was compiled with one in memory, where mount points are made.
func points(base *os.File, workspace string, v *rootfs.View, uid, gid int) error {
	var on []string
	for _, m := range v.Mounts { // parents come first
		if m.Pin || m.Kind == rootfs.MountMask || m.Target == workspace || !pathname.Within(m.Target, workspace) ||
			slices.ContainsFunc(on, func(o string) bool { return pathname.Within(m.Target, o) }) {
			continue
		}
		on = append(on, m.Target)
		if err := made.Point(base, path.Join("workspace", m.Target[len(workspace):]), m.Dir, uid, gid); err != nil {
			return err
		}
	}
	return nil
}

// deniedIn says which files of a directory of the host a view hides.
func deniedIn(v *rootfs.View, source string) func(rel string) bool {
	hidden := map[string]bool{}
	for _, d := range v.Masked {
		if rel, err := filepath.Rel(source, d.Host); err == nil && filepath.IsLocal(rel) {
			hidden[rel] = true
		}
	}
	cover := spec.CoverOf(v)
	for _, m := range v.Mounts {
		if m.Kind != rootfs.MountMask {
			continue
		}
		if around := cover.HostPath(m.Target); around != "" {
			if rel, err := filepath.Rel(source, around); err == nil && filepath.IsLocal(rel) {
				hidden[rel] = true
			}
		}
	}
	return func(rel string) bool { return hidden[path.Clean(rel)] }
}

// noteMade makes the note of a sandbox's id. What a creator has left that is dead is removed first.
func (s *Store) noteMade(id string) (*os.File, error) {
	for range 2 {
		f, err := s.root.OpenFile(madePrefix+id, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err == nil {
			err = flock.Lock(f, unix.LOCK_EX|unix.LOCK_NB)
			if err == nil {
				return f, nil
			}
			f.Close()
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, fail(fault.StateUnusable, fault.DiskHint, "note what is made on disk: %w", fault.Cause(err))
		}
		if err := s.sweepMade(id); err != nil {
			return nil, err
		}
	}
	return nil, fail(fault.IDInUse, "choose another id, or end that one: sandboxrun delete "+id, "sandbox %q exists already", id)
}

func (m *Made) save() error {
	data, err := json.Marshal(m.record)
	if err == nil {
		_, err = m.note.WriteAt(data, 0) // it only becomes longer
	}
	if err != nil {
		return fail(fault.StateUnusable, fault.DiskHint, "note what is made on disk: %w", fault.Cause(err))
	}
	return nil
}

// Close lets go of the note: from now on what was made belongs to the sandbox, and goes with it.
func (m *Made) Close() {
	if m != nil {
		m.note.Close()
	}
}

// Discard removes what was made for a sandbox that could not be created.
func (m *Made) Discard() error {
	if m == nil {
		return nil
	}
	defer m.Close()
	mine, err := m.note.Stat()
	now, nerr := m.store.root.Lstat(madePrefix + m.id)
	if err != nil || nerr != nil || !os.SameFile(mine, now) {
		return err // it is gone already
	}
	return m.store.unmake(m.id)
}

// Keep leaves what was made to the caller, and says where it is.
func (m *Made) Keep() (string, error) {
	return m.record.Path, m.store.root.Remove(madePrefix + m.id)
}

// unmakeEnded removes what was made for a sandbox that has ended, unless somebody has made it for the next one of that id.
func (s *Store) unmakeEnded(id string) error {
	f, err := s.root.OpenFile(madePrefix+id, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w", madePrefix+id, fault.Cause(err))
	}
	defer f.Close()
	if flock.Lock(f, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	return s.unmake(id)
}

// unmake removes what a note tells of, and the note.
func (s *Store) unmake(id string) error {
	data, err := s.root.ReadFile(madePrefix + id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var r made.Record
	if err == nil && len(data) > 0 { // else nothing was made yet
		err = json.Unmarshal(data, &r)
	}
	if err == nil && r.Path != "" {
		err = r.Remove()
	}
	if err == nil {
		err = s.root.Remove(madePrefix + id)
	}
	return err
}

// sweepMade removes what was made for a sandbox that there is not, and is not about to be.
func (s *Store) sweepMade(id string) error {
	if _, err := s.root.Lstat(id); err == nil {
		return nil
	}
	return s.unmakeEnded(id)
}

// sweepAllMade does so for all.
func (s *Store) sweepAllMade() error {
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	var troubles []error
	for _, e := range entries {
		if id, ok := strings.CutPrefix(e.Name(), madePrefix); ok && validID(id) {
			if err := s.sweepMade(id); err != nil {
				troubles = append(troubles, err)
			}
		}
	}
	return errors.Join(troubles...)
}
