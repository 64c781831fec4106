package rootfs

import (
	"fmt"
	"slices"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// Writables knows which host paths a policy lets programs write. A symbolic link that stands there may have been made by a
// program, in an earlier sandbox of the policy: to follow it would let the program choose what the next sandbox shows.
type Writables struct {
	tree      hostfs.Tree
	locations *hostfs.Locations
	names     map[string]bool // host paths of writable sources
	parts     map[hostfs.Location]bool
	nodes     map[hostfs.Inode]bool
}

// NewWritables takes the resolved sources of all writable grants.
func NewWritables(tree hostfs.Tree, p *hostfs.Locations, sources []string) *Writables {
	h := &Writables{tree, p, map[string]bool{}, map[hostfs.Location]bool{}, map[hostfs.Inode]bool{}}
	for _, s := range sources {
		h.names[s] = true
		h.parts[p.Of(s)] = true
		if info, err := tree.Lstat(s); err == nil {
			h.nodes[info.Inode()] = true
		}
		for target, m := range p.Visible { // a bind takes along what is mounted below its source
			if pathname.Below(target, s) {
				h.parts[m.Location] = true
			}
		}
	}
	return h
}

// MayReplace reports whether the policy lets programs replace what is at a host path.
func (h *Writables) MayReplace(host string) bool {
	if len(h.names) == 0 {
		return false
	}
	dir := pathname.Parent(host)
	for up := range pathname.Ups(dir) {
		info, err := h.tree.Lstat(up)
		if h.names[up] || err == nil && h.nodes[info.Inode()] {
			return true
		}
	}
	place := h.locations.Of(dir)
	for up := range pathname.Ups(place.Path) {
		if h.parts[hostfs.Location{Dev: place.Dev, Path: up}] {
			return true
		}
	}
	return false
}

// First is the first of some links that a program may have made.
func (h *Writables) First(links []pathname.Link) (pathname.Link, bool) {
	for _, l := range links {
		if h.MayReplace(l.At) {
			return l, true
		}
	}
	return pathname.Link{}, false
}

// Redirected is the error for a path that goes through a link which a program may have made. From is where the policy names it.
func Redirected(from, path string, l pathname.Link, real string) *fault.Error {
	return Invalid(
		fmt.Sprintf("a program may have made the link; if it leads where you want, name that path instead: %q", real),
		"%s %q goes through the symbolic link %q (to %q), and the policy lets programs write there", from, path, l.At, l.Text)
}

// writables are what programs of the view can write, and the host paths of that.
func (v *View) writables(tree hostfs.Tree) (*Writables, []string) {
	sources := slices.Clone(v.Writable)
	for _, m := range v.Mounts {
		if m.Kind == MountBind && m.Source != "" && m.Writable {
			sources = append(sources, m.Source)
		}
	}
	return NewWritables(tree, hostfs.NewLocations(tree, tree.Mounts()), sources), sources
}

// Follower returns a function that resolves a host path which the launcher will use outside. The error is a *fault.Error if the
// path goes through a link that the view lets programs make; then the path that is returned is that link's own. The path
// need not exist.
func (v *View) Follower(tree hostfs.Tree) func(from, path string) (string, error) {
	tree = hostfs.NewMemo(tree)
	h, _ := v.writables(tree)
	return func(from, path string) (string, error) {
		t, _ := hostfs.Follow(tree, path)
		if l, ok := h.First(t.Links); ok {
			return l.At, Redirected(from, path, l, t.Real)
		}
		return t.Real, nil
	}
}

// hardLink searches the sources for another name of a file. File systems other than the file's are left out: a dead network mount
// would hang.
func (h *Writables) hardLink(host string, file hostfs.Inode, sources []string) (found string) {
	skip := map[string]bool{}
	for target, m := range h.locations.Visible {
		skip[target] = m.Dev != h.locations.Mount(host).Dev
	}
	w := &hostfs.HardLinks{
		Tree: h.tree, Skip: skip, Wanted: map[hostfs.Inode]string{file: ""},
		Found: func(name, _ string) { found = name },
	}
	for _, s := range pathname.SortedUnique(slices.Clone(sources)) {
		w.Walk(s)
	}
	return found
}

// WritablePaths lists the host paths that the policy lets programs write, as it names them.
func (p *Policy) WritablePaths() []string {
	var list []string
	for _, g := range p.Write {
		list = append(list, g.Path)
	}
	for _, b := range p.Binds {
		if b.Writable {
			list = append(list, b.Source)
		}
	}
	if w := p.Workspace; w != nil && w.Source != SourceTmpfs && w.Source != SourceDisk {
		list = append(list, w.Source)
	}
	return list
}

// WritableSources is WritablePaths without symbolic links: each path that exists, once.
func (p *Policy) WritableSources(tree hostfs.Tree) []string {
	var list []string
	for _, name := range p.WritablePaths() {
		if !pathname.Clean(name) {
			continue // an error that is reported where the path is used
		}
		if t, err := hostfs.Follow(tree, name); err == nil {
			list = append(list, t.Real)
		}
	}
	return pathname.SortedUnique(list)
}

// MadeByPrograms returns a function that reports what of a host path a program of an earlier sandbox of the policy may have made: a symbolic link
// on the way, and the file itself.
func MadeByPrograms(tree hostfs.Tree, p Policy) func(path string) (link, file bool) {
	tree = hostfs.NewMemo(tree)
	w := NewWritables(tree, hostfs.NewLocations(tree, tree.Mounts()), p.WritableSources(tree))
	return func(path string) (link, file bool) {
		t, _ := hostfs.Follow(tree, path)
		_, link = w.First(t.Links)
		return link, w.MayReplace(pathname.Join(t.Real, "x")) // a file of a name of its own in it, or below
	}
}
