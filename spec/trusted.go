package spec

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// No grant may give a program a file that the launcher trusts: the state of sandboxes, the policy, the launcher itself, keys and
// records. A program that changes one of these files decides what the next command does. Paths prove nothing here, because a bind
// mount or a symlink gives a file another path. So files are compared by file system and path within it.

// Trusted is a file or directory that the launcher trusts.
type Trusted struct {
	What     string // such as "the policy"
	Path     string // for messages
	Location hostfs.Location
	// Links are the directories that hold the symlinks on the way to Path.
	Links []hostfs.Location
	// Readable: programs may read it, so it is shown read-only. No grant may show other trusted files.
	Readable bool
	// State: it is a state directory. Below a grant it is masked.
	State bool
	// Absent: it does not exist.
	Absent bool
	// Output: the launcher only writes new files in it, so a grant of a directory below it is harmless.
	Output bool
}

// Shown is a host path and its place: a granted path, or a mount below it.
type Shown struct {
	Path     string
	Location hostfs.Location
}

// Ground answers the questions of the check of grants about the machine.
type Ground interface {
	// Shown lists the places that a bind mount of a host path shows: the path itself, then each mount below it.
	Shown(path string) ([]Shown, error)
	// Trusted lists all trusted files that may contain, or lie in, one of these places.
	Trusted(near []hostfs.Location) ([]Trusted, error)
}

// guarded lists the trusted files in writable grants that the compiler shows read-only. CheckTrusted refuses those that no grant may
// show.
func guarded(p *rootfs.Policy, h *Host) ([]rootfs.Grant, error) {
	if h.Ground == nil {
		return nil, nil
	}
	var list []rootfs.Grant
	for _, s := range p.WritablePaths() {
		found, err := guardedIn(hostfs.RealPath(h.Tree, s), h.Ground)
		if err != nil {
			return nil, groundError(s, err)
		}
		list = append(list, found...)
	}
	return list, nil
}

func guardedIn(source string, g Ground) ([]rootfs.Grant, error) {
	shown, err := g.Shown(source)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, nil // the compiler reports the error
	}
	if err != nil {
		return nil, err
	}
	trusted, err := g.Trusted(places(shown))
	var list []rootfs.Grant
	for _, t := range trusted {
		for _, place := range shown {
			if t.Readable && t.Location.Within(place.Location) {
				list = append(list, rootfs.Grant{Path: place.path(t.Location), From: t.What})
			}
		}
	}
	return list, err
}

func groundError(what string, err error) error {
	return fault.New(fault.GrantHoldsTrusted, "", "find out where %q is: %w", what, err)
}

func places(list []Shown) []hostfs.Location {
	out := make([]hostfs.Location, len(list))
	for i, s := range list {
		out[i] = s.Location
	}
	return out
}

// path is the host path of a place inside s.
func (s Shown) path(p hostfs.Location) string {
	return path.Join(s.Path, strings.TrimPrefix(p.Path, s.Location.Path))
}

// CheckTrusted refuses a view that lets a program write trusted files, or read those that it may not read. It looks only at the
// mounts of the view, not at the compiler's reasons.
func CheckTrusted(v *rootfs.View, g Ground) error {
	in, err := inspect(v, g)
	if err != nil {
		return err
	}
	return in.check()
}

// inspection is a view with the places that its mounts show, and the trusted files near them.
type inspection struct {
	view    *rootfs.View
	cover   rootfs.ByTarget
	shown   [][]Shown // by mount
	trusted []Trusted
}

func inspect(v *rootfs.View, g Ground) (*inspection, error) {
	in := &inspection{view: v, cover: v.ByTarget(), shown: make([][]Shown, len(v.Mounts))}
	if g == nil {
		return in, nil
	}
	var near []hostfs.Location
	for i, m := range v.Mounts {
		if m.Kind != rootfs.MountBind || m.Source == "" || m.Link { // the target of a symlink is another mount
			continue
		}
		list, err := g.Shown(m.Source)
		if err != nil {
			return nil, fault.New(fault.GrantMissing, "did it change while the sandbox was made?", "%s: look at %q: %w", m.From, m.Source, err)
		}
		in.shown[i] = list
		near = append(near, places(list)...)
	}
	var err error
	if in.trusted, err = g.Trusted(near); err != nil {
		return nil, groundError("what the launcher trusts", err)
	}
	return in, nil
}

// each calls judge with each mount, each place that it shows and each trusted file, until judge returns an error.
func (in *inspection) each(judge func(m *rootfs.Mount, s Shown, t *Trusted) error) error {
	for i, list := range in.shown {
		for j := range in.trusted {
			for _, s := range list {
				if err := judge(&in.view.Mounts[i], s, &in.trusted[j]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (in *inspection) check() error {
	return in.each(func(m *rootfs.Mount, s Shown, t *Trusted) error { return in.judge(m, s, t) })
}

// hide lists the host paths of state directories, or of parts of them, below grants. check judges a grant that is a state directory
// or lies in one.
func (in *inspection) hide() []string {
	var list []string
	_ = in.each(func(m *rootfs.Mount, s Shown, t *Trusted) error {
		host, near := s.hostPath(t)
		if !near || !t.State || host == m.Source {
			return nil
		}
		cover := in.cover.Cover(insidePath(m, host))
		if cover.Kind != rootfs.MountMask && (m.Writable || cover == m && !t.Absent) {
			list = append(list, host)
		}
		return nil
	})
	slices.Sort(list)
	return slices.Compact(list)
}

// hostPath is the host path at which s shows a trusted place or a part of it. The result is false if it shows none.
func (s Shown) hostPath(t *Trusted) (string, bool) {
	if t.Location.Within(s.Location) {
		return s.path(t.Location), true
	}
	return s.Path, s.Location.Within(t.Location)
}

func insidePath(m *rootfs.Mount, host string) string {
	return path.Join(m.Target, strings.TrimPrefix(host, m.Source))
}

// judge compares one place that a mount shows with one trusted file.
func (in *inspection) judge(m *rootfs.Mount, s Shown, t *Trusted) error {
	if m.Writable && slices.ContainsFunc(t.Links, func(l hostfs.Location) bool { return l.Within(s.Location) }) {
		return trustedError(m, t, "holds a symlink on the way to", "name "+t.What+" by a path without symlinks")
	}
	host, near := s.hostPath(t)
	if !near {
		return nil
	}
	inside := insidePath(m, host)
	cover, part := in.cover.Cover(inside), !t.Location.Within(s.Location)
	switch {
	case t.State && in.hidden(m, inside, t):
	case part && !t.Readable && !t.Output:
		return trustedError(m, t, "lies in", trustedHint)
	case part:
	case t.Readable && m.Writable && (cover == nil || cover.Kind == rootfs.MountBind && cover.Writable):
		return trustedError(m, t, "lets the program write", "grant it with files.read, or keep it elsewhere")
	case t.Output && (m.Writable || cover == m):
		return fault.New(fault.OutputDirGranted, "choose a directory that the program cannot see: outside of all that the policy grants",
			"%s %q is in what the program sees as %q", t.What, t.Path, m.Target)
	case !t.Readable && (m.Writable || cover == m):
		return trustedError(m, t, "holds", trustedHint)
	}
	return nil
}

// hidden reports whether the program cannot see a state directory below a mount: it is masked, with a pinned mask, or it does not
// exist and is denied. A directory that appears later in a read-only grant was not made by the program, so it is harmless.
func (in *inspection) hidden(m *rootfs.Mount, inside string, t *Trusted) bool {
	if cover := in.cover.Cover(inside); cover != nil && cover.Kind == rootfs.MountMask {
		return true
	}
	return t.Absent && !m.Writable || slices.ContainsFunc(in.view.Absent, func(d rootfs.Denied) bool { return d.Inside == inside })
}

const trustedHint = "grant a directory that has nothing else in it (mkdir work; cd work), or move what is in the way"

func trustedError(m *rootfs.Mount, t *Trusted, how, hint string) error {
	if t.State && how == "holds" {
		hint = "grant a directory of its own below it (mkdir work; cd work), or keep the state elsewhere: --root DIR"
	}
	return fault.New(fault.GrantHoldsTrusted, hint, "%s %q %s %s %q", m.From, m.Source, how, t.What, t.Path)
}
