package rootfs

import (
	"fmt"
	"io/fs"
	"iter"
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

	link string // what a symbolic link says
}

// Lookup says where a path inside leads, following links as the program would. If nothing is there the error satisfies
// errors.Is with fs.ErrNotExist, and the Place still says where the path would be made.
func (v *View) Lookup(tree Tree, inside string) (Place, error) {
	return v.scene(tree).walk(inside)
}

// Inside gives every name, sorted, by which the host path is shown inside. Symbolic links add further names to these.
// The host path must have its links resolved; it need not exist.
func (v *View) Inside(host string) []string { return v.Names()(host) }

// Names is Inside for many host paths: it looks at the mounts once.
func (v *View) Names() func(host string) []string {
	hostNames := v.scene(nil).hostNames()
	return func(host string) []string {
		var names []string
		for inside := range hostNames(host) {
			names = append(names, inside)
		}
		return sortedUnique(names)
	}
}

func (v *View) scene(tree Tree) *scene {
	s := newScene(tree)
	for _, e := range v.Entries {
		s.entries[e.Path] = e
	}
	for i := range v.Mounts {
		s.mount(&v.Mounts[i])
	}
	return s
}

// scene is a view, or a part of one, in a form that is quick to ask.
type scene struct {
	tree    Tree
	entries map[string]Entry
	mounts  map[string]*Mount // by target
	above   map[string]bool   // every directory that has a mount below it
}

func newScene(tree Tree) *scene {
	return &scene{
		tree:    tree,
		entries: map[string]Entry{"/": {Path: "/", Kind: EntryDir, Mode: 0o755}},
		mounts:  map[string]*Mount{},
		above:   map[string]bool{},
	}
}

func (s *scene) mount(m *Mount) {
	s.mounts[m.Target] = m
	for up := parent(m.Target); !s.above[up]; up = parent(up) {
		s.above[up] = true
	}
}

// cover is the mount that shows path, or nil where that is the sandbox's own root. A mount never covers one that is
// above it, so the nearest target decides.
func (s *scene) cover(p string) *Mount {
	for up := range ups(p) {
		if m := s.mounts[up]; m != nil {
			return m
		}
	}
	return nil
}

// walk follows path through the view.
func (s *scene) walk(p string) (Place, error) {
	spot, _, err := s.trace(p)
	return spot, err
}

// trace is walk, and lists the links on the way by their places inside.
func (s *scene) trace(p string) (Place, []link, error) {
	at, links, err := chase(p, func(place string) (string, bool) {
		spot, err := s.at(place)
		return spot.link, err == nil && spot.link != ""
	})
	if err != nil {
		return Place{Path: at}, links, fmt.Errorf("follow %q: %w", p, err)
	}
	spot, err := s.at(at)
	if err != nil {
		err = fmt.Errorf("look up %q: %w", p, err)
	}
	return spot, links, err
}

// onHost gives links inside that a bind shows the host paths that they have outside. Others are the sandbox's own.
func (s *scene) onHost(links []link) []link {
	var list []link
	for _, l := range links {
		if m := s.cover(l.place); m != nil && m.Kind == MountBind && m.Source != "" {
			l.place = rebase(l.place, m.Target, m.Source)
			list = append(list, l)
		}
	}
	return list
}

// at says what stands at a path of which no component but the last is a link.
func (s *scene) at(p string) (Place, error) {
	m := s.cover(p)
	spot := Place{Path: p, Mount: m}
	switch {
	case m == nil:
		spot.Kind = PlaceRoot
		e, ok := s.entries[p]
		if !ok {
			return spot, fs.ErrNotExist
		}
		spot.Dir = e.Kind == EntryDir
		if e.Kind == EntrySymlink {
			spot.link = e.Content
		}
		return spot, nil
	case m.Kind == MountBind && m.Source != "":
		return s.behind(spot)
	case m.Kind == MountTmpfs:
		spot.Kind, spot.Writable, spot.Dir = PlaceTmpfs, m.Mode&0o222 != 0, true
		if p != m.Target && !s.above[p] {
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
func (s *scene) behind(spot Place) (Place, error) {
	m := spot.Mount
	spot.Kind, spot.Host, spot.Writable = PlaceHost, rebase(spot.Path, m.Target, m.Source), m.Writable
	info, err := s.tree.Lstat(spot.Host)
	if err != nil {
		return spot, err
	}
	spot.Dir = info.Mode.IsDir()
	if info.Mode&fs.ModeSymlink != 0 {
		spot.link, err = s.tree.Readlink(spot.Host)
	}
	return spot, err
}

// hostNames returns a function that yields every place inside at which a bind shows a host path, with the bind.
func (s *scene) hostNames() func(host string) iter.Seq2[string, *Mount] {
	binds := map[string][]*Mount{} // by source
	for _, m := range s.mounts {
		if m.Kind == MountBind && m.Source != "" {
			binds[m.Source] = append(binds[m.Source], m)
		}
	}
	return func(host string) iter.Seq2[string, *Mount] {
		return func(yield func(string, *Mount) bool) {
			for up := range ups(host) {
				if !s.yieldNames(host, binds[up], yield) {
					return
				}
			}
		}
	}
}

// yieldNames yields the places of a host path behind those of the binds that nothing covers there.
func (s *scene) yieldNames(host string, binds []*Mount, yield func(string, *Mount) bool) bool {
	for _, m := range binds {
		inside := rebase(host, m.Source, m.Target)
		if s.cover(inside) == m && !yield(inside, m) {
			return false
		}
	}
	return true
}

// makeDirs adds p and its parents as directories of the sandbox's own root.
func (s *scene) makeDirs(p string) {
	for up := range ups(p) {
		if _, ok := s.entries[up]; !ok {
			s.entries[up] = Entry{Path: up, Kind: EntryDir, Mode: 0o755}
		}
	}
}
