package made

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
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// A note of what is made is written first, and locked until the sandbox is there. So what a creator has made that was killed is found by
// a sweep.

const prefix = ".made-"

// Notes are those in a state directory.
type Notes struct{ Root *os.Root }

// Directory is what was made for a sandbox that is about to be created.
type Directory struct {
	notes    Notes
	id       string
	note     *os.File
	record   Record
	Warnings []string
}

// Makes reports whether a policy wants something to be made on disk for each sandbox.
func Makes(p *policy.Policy) bool {
	w := p.Files.Workspace
	return w != nil && w.Source == rootfs.SourceDisk || slices.ContainsFunc(p.Files.Binds, func(b rootfs.Bind) bool { return b.Copy })
}

// Make makes what a policy wants on disk, and changes it to name that. plan is what the policy became before: it says what is
// denied, and where links lead.
func (n Notes) Make(id string, p *policy.Policy, plan *spec.Plan) (_ *Directory, err error) {
	w := p.Files.Workspace
	parent := parentDir
	if w != nil && w.Parent != "" {
		parent = w.Parent
	}
	m := &Directory{notes: n, id: id, record: Name(parent)}
	if m.note, err = n.begin(id); err != nil {
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
func (m *Directory) fill(base *os.File, p *policy.Policy, plan *spec.Plan) error {
	uid, gid := -1, -1 // the caller's own; a mount of root's shows them as the program's
	if plan.Exec.UID != 0 && !plan.Exec.OwnID {
		uid, gid = plan.Exec.UID, plan.Exec.GID
	}
	if w := p.Files.Workspace; w != nil && w.Source == rootfs.SourceDisk {
		if err := Dir(base, "workspace", uid, gid); err != nil {
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
func (m *Directory) copies(base *os.File, p *policy.Policy, plan *spec.Plan, uid, gid int) error {
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
		dropped, err := Copy(base, name, source, uid, gid, deniedIn(plan.View, source))
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
		if err := Point(base, path.Join("workspace", m.Target[len(workspace):]), m.Dir, uid, gid); err != nil {
			return err
		}
	}
	return nil
}

// deniedIn says which files of a directory of the host a view hides.
func deniedIn(v *rootfs.View, source string) func(rel string) bool {
	hidden := map[string]bool{}
	for _, d := range v.Masked {
		if rel, ok := pathname.Rest(d.Host, source); ok {
			hidden[rel] = true
		}
	}
	cover := v.ByTarget()
	for _, m := range v.Mounts {
		if m.Kind != rootfs.MountMask {
			continue
		}
		if rel, ok := pathname.Rest(cover.HostPath(m.Target), source); ok {
			hidden[rel] = true
		}
	}
	return func(rel string) bool { return hidden[path.Clean(rel)] }
}

// begin makes the note of a sandbox's id. What a creator has left that is dead is removed first.
func (n Notes) begin(id string) (*os.File, error) {
	for range 2 {
		f, err := n.Root.OpenFile(prefix+id, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err == nil {
			err = flock.Lock(f, unix.LOCK_EX|unix.LOCK_NB)
			if err == nil {
				return f, nil
			}
			f.Close()
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, fault.New(fault.StateUnusable, fault.DiskHint, "note what is made on disk: %w", fault.Cause(err))
		}
		if err := n.sweep(id); err != nil {
			return nil, err
		}
	}
	return nil, fault.New(fault.IDInUse, "choose another id, or end that one: sandboxrun delete "+id, "sandbox %q exists already", id)
}

func (m *Directory) save() error {
	data, err := json.Marshal(m.record)
	if err == nil {
		_, err = m.note.WriteAt(data, 0) // it only becomes longer
	}
	if err != nil {
		return fault.New(fault.StateUnusable, fault.DiskHint, "note what is made on disk: %w", fault.Cause(err))
	}
	return nil
}

// Close lets go of the note: from now on what was made belongs to the sandbox, and goes with it.
func (m *Directory) Close() {
	if m != nil {
		m.note.Close()
	}
}

// Discard removes what was made for a sandbox that could not be created.
func (m *Directory) Discard() error {
	if m == nil {
		return nil
	}
	defer m.Close()
	mine, err := m.note.Stat()
	now, nerr := m.notes.Root.Lstat(prefix + m.id)
	if err != nil || nerr != nil || !os.SameFile(mine, now) {
		return err // it is gone already
	}
	return m.notes.remove(m.id)
}

// Keep leaves what was made to the caller, and says where it is.
func (m *Directory) Keep() (string, error) {
	return m.record.Path, m.notes.Root.Remove(prefix + m.id)
}

// RemoveEnded removes what was made for a sandbox that has ended, unless somebody has made it for the next one of that id.
func (n Notes) RemoveEnded(id string) error {
	f, err := n.Root.OpenFile(prefix+id, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w", prefix+id, fault.Cause(err))
	}
	defer f.Close()
	if flock.Lock(f, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	return n.remove(id)
}

// remove removes the directory of a note, and the note.
func (n Notes) remove(id string) error {
	data, err := n.Root.ReadFile(prefix + id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var r Record
	if err == nil && len(data) > 0 { // else nothing was made yet
		err = json.Unmarshal(data, &r)
	}
	if err == nil && r.Path != "" {
		err = r.Remove()
	}
	if err == nil {
		err = n.Root.Remove(prefix + id)
	}
	return err
}

// sweep removes what was made for a sandbox that there is not, and is not about to be.
func (n Notes) sweep(id string) error {
	if _, err := n.Root.Lstat(id); err == nil {
		return nil
	}
	return n.RemoveEnded(id)
}

// Sweep removes what was made for any sandbox that there is not, and is not about to be. valid says what an id can be.
func (n Notes) Sweep(valid func(id string) bool) error {
	entries, err := fs.ReadDir(n.Root.FS(), ".")
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	var troubles []error
	for _, e := range entries {
		if id, ok := strings.CutPrefix(e.Name(), prefix); ok && valid(id) {
			if err := n.sweep(id); err != nil {
				troubles = append(troubles, err)
			}
		}
	}
	return errors.Join(troubles...)
}
