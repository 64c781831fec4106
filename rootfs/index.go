package rootfs

import (
	"fmt"
	"io/fs"
	"iter"
	"slices"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// PlaceKind says what stands at a path inside.
type PlaceKind string

// Kinds of places.
const (
	PlaceRoot      PlaceKind = "root"      // the sandbox's own root: an Entry
	PlaceHost      PlaceKind = "host"      // a host file behind a bind
	PlaceTmpfs     PlaceKind = "tmpfs"     // memory of the sandbox
	PlaceMask      PlaceKind = "mask"      // hidden
	PlaceGenerated PlaceKind = "generated" // a file that the launcher wrote
	PlaceOwn       PlaceKind = "own"       // /proc and /dev, which no View has: only Explain says so
)

// Place is where a path inside leads.
type Place struct {
	Kind     PlaceKind
	Path     string // the path inside, with every link resolved
	Host     string // the host path, for PlaceHost
	Mount    *Mount // the mount that shows it; nil for PlaceRoot
	Writable bool   // the program may write there, as far as mounts are concerned
	Dir      bool

	Link string // what a symbolic link says
}

// Lookup says where a path inside leads, following links as the program would. If nothing is there the error satisfies
// errors.Is with fs.ErrNotExist, and the Place still says where the path would be made.
func (v *View) Lookup(tree hostfs.Tree, inside string) (Place, error) {
	return v.Index(tree).Walk(inside)
}

// Inside gives every name, sorted, by which the host path is shown inside. Symbolic links add further names to these.
// The host path must have its links resolved; it need not exist.
func (v *View) Inside(host string) []string { return v.Names()(host) }

// Names is Inside for many host paths: it looks at the mounts once.
func (v *View) Names() func(host string) []string {
	hostNames := v.Index(nil).HostNames()
	return func(host string) []string {
		var names []string
		for inside := range hostNames(host) {
			names = append(names, inside)
		}
		return pathname.SortedUnique(names)
	}
}

// Index makes the view quick to ask.
func (v *View) Index(tree hostfs.Tree) *Index {
	s := NewIndex(tree)
	for _, e := range v.Entries {
		s.Entries[e.Path] = e
	}
	for i := range v.Mounts {
		s.Add(&v.Mounts[i])
	}
	return s
}

// Index is a view, or a part of one, in a form that is quick to ask.
type Index struct {
	Tree    hostfs.Tree
	Entries map[string]Entry
	Mounts  ByTarget
	Above   map[string]bool // every directory that has a mount below it
}

// NewIndex is the index of an empty view of a host.
func NewIndex(tree hostfs.Tree) *Index {
	return &Index{
		Tree:    tree,
		Entries: map[string]Entry{"/": {Path: "/", Kind: EntryDir, Mode: 0o755}},
		Mounts:  ByTarget{},
		Above:   map[string]bool{},
	}
}

// Add adds a mount.
func (s *Index) Add(m *Mount) {
	s.Mounts[m.Target] = m
	for up := pathname.Parent(m.Target); !s.Above[up]; up = pathname.Parent(up) {
		s.Above[up] = true
	}
}

// Cover is ByTarget.Cover.
func (s *Index) Cover(p string) *Mount { return s.Mounts.Cover(p) }

// Walk follows path through the view.
func (s *Index) Walk(p string) (Place, error) {
	spot, _, err := s.Trace(p)
	return spot, err
}

// Trace is walk, and lists the links on the way by their places inside.
func (s *Index) Trace(p string) (Place, []pathname.Link, error) {
	at, links, err := pathname.Chase(p, func(place string) (string, bool) {
		spot, err := s.At(place)
		return spot.Link, err == nil && spot.Link != ""
	})
	if err != nil {
		return Place{Path: at}, links, fmt.Errorf("follow %q: %w", p, err)
	}
	spot, err := s.At(at)
	if err != nil {
		err = fmt.Errorf("look up %q: %w", p, err)
	}
	return spot, links, err
}

// OnHost gives links inside that a bind shows the host paths that they have outside. Others are the sandbox's own.
func (s *Index) OnHost(links []pathname.Link) []pathname.Link {
	var list []pathname.Link
	for _, l := range links {
		if m := s.Cover(l.At); m != nil && m.Kind == MountBind && m.Source != "" {
			l.At = pathname.Rebase(l.At, m.Target, m.Source)
			list = append(list, l)
		}
	}
	return list
}

// At says what stands at a path of which no component but the last is a link.
func (s *Index) At(p string) (Place, error) {
	m := s.Cover(p)
	spot := Place{Path: p, Mount: m}
	switch {
	case m == nil:
		spot.Kind = PlaceRoot
		e, ok := s.Entries[p]
		if !ok {
			return spot, fs.ErrNotExist
		}
		spot.Dir = e.Kind == EntryDir
		if e.Kind == EntrySymlink {
			spot.Link = e.Content
		}
		return spot, nil
	case m.Kind == MountBind && m.Source != "":
		return s.behind(spot)
	case m.Kind == MountTmpfs:
		spot.Kind, spot.Writable, spot.Dir = PlaceTmpfs, m.Mode&0o222 != 0, true
		if p != m.Target && !s.Above[p] {
			spot.Dir = false
			return spot, fs.ErrNotExist
		}
		return spot, nil
	case m.Kind == MountMask:
		spot.Kind = PlaceMask
	default:
		spot.Kind = PlaceGenerated
	}
	spot.Dir = m.Dir
	if p != m.Target {
		spot.Dir = false
		return spot, fs.ErrNotExist
	}
	return spot, nil
}

// behind completes a Place whose mount is a bind of a host path.
func (s *Index) behind(spot Place) (Place, error) {
	m := spot.Mount
	if m.leavesOut(spot.Path) {
		spot.Kind = PlaceHost
		return spot, fs.ErrNotExist
	}
	spot.Kind, spot.Host, spot.Writable = PlaceHost, pathname.Rebase(spot.Path, m.Target, m.Source), m.Writable
	info, err := s.Tree.Lstat(spot.Host)
	if err != nil {
		return spot, err
	}
	spot.Dir = info.Mode.IsDir()
	if info.Mode&fs.ModeSymlink != 0 {
		spot.Link, err = s.Tree.Readlink(spot.Host)
	}
	return spot, err
}

// HostNames returns a function that yields every place inside at which a bind shows a host path, with the bind.
func (s *Index) HostNames() func(host string) iter.Seq2[string, *Mount] {
	binds := map[string][]*Mount{} // by source
	for _, m := range s.Mounts {
		if m.Kind == MountBind && m.Source != "" {
			binds[m.Source] = append(binds[m.Source], m)
		}
	}
	return func(host string) iter.Seq2[string, *Mount] {
		return func(yield func(string, *Mount) bool) {
			for up := range pathname.Ups(host) {
				if !s.yieldNames(host, binds[up], yield) {
					return
				}
			}
		}
	}
}

// yieldNames yields the places of a host path behind those of the binds that nothing covers there.
func (s *Index) yieldNames(host string, binds []*Mount, yield func(string, *Mount) bool) bool {
	for _, m := range binds {
		inside := pathname.Rebase(host, m.Source, m.Target)
		if s.Cover(inside) == m && !m.leavesOut(inside) && !yield(inside, m) {
			return false
		}
	}
	return true
}

// MakeDirs adds p and its parents as directories of the sandbox's own root.
func (s *Index) MakeDirs(p string) {
	for up := range pathname.Ups(p) {
		if _, ok := s.Entries[up]; !ok {
			s.Entries[up] = Entry{Path: up, Kind: EntryDir, Mode: 0o755}
		}
	}
}

// leavesOut reports whether a mount shows nothing at a path inside, whatever the host has there.
func (m *Mount) leavesOut(inside string) bool {
	return slices.ContainsFunc(m.Without, func(name string) bool { return pathname.Within(inside, pathname.Join(m.Target, name)) })
}
