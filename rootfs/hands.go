package rootfs

import (
	"fmt"
	"slices"
)

// hands knows which host paths a policy lets programs write. A symbolic link that stands there may have been made by a
// program, in an earlier sandbox of the policy: to follow it would let the program choose what the next sandbox shows.
type hands struct {
	tree   Tree
	places *places
	names  map[string]bool // host paths of writable sources
	parts  map[hostPlace]bool
	nodes  map[inode]bool
}

// newHands takes the resolved sources of all writable grants.
func newHands(tree Tree, p *places, sources []string) *hands {
	h := &hands{tree, p, map[string]bool{}, map[hostPlace]bool{}, map[inode]bool{}}
	for _, s := range sources {
		h.names[s] = true
		h.parts[p.of(s)] = true
		if info, err := tree.Lstat(s); err == nil {
			h.nodes[inode{info.Dev, info.Ino}] = true
		}
		for target, m := range p.visible { // a bind takes along what is mounted below its source
			if below(target, s) {
				h.parts[hostPlace{m.Dev, m.Root}] = true
			}
		}
	}
	return h
}

// hold reports whether the policy lets programs replace what is at a host path.
func (h *hands) hold(host string) bool {
	if len(h.names) == 0 {
		return false
	}
	dir := parent(host)
	for up := range ups(dir) {
		info, err := h.tree.Lstat(up)
		if h.names[up] || err == nil && h.nodes[inode{info.Dev, info.Ino}] {
			return true
		}
	}
	place := h.places.of(dir)
	for up := range ups(place.path) {
		if h.parts[hostPlace{place.dev, up}] {
			return true
		}
	}
	return false
}

// first is the first of some links that a program may have made.
func (h *hands) first(links []link) (link, bool) {
	for _, l := range links {
		if h.hold(l.place) {
			return l, true
		}
	}
	return link{}, false
}

// writableSources lists the host paths that the policy lets programs write, with their links resolved.
func (c *compiler) writableSources() []string {
	var asked []string
	for _, g := range c.Policy.Write {
		asked = append(asked, g.Path)
	}
	for _, b := range c.Policy.Binds {
		if b.Writable {
			asked = append(asked, b.Source)
		}
	}
	if w := c.Policy.Workspace; w != nil && w.Source != "tmpfs" {
		asked = append(asked, w.Source)
	}
	var list []string
	for _, p := range asked {
		if !clean(p) {
			continue // an error that is reported where the path is used
		}
		if t, err := follow(c.tree, p); err == nil {
			list = append(list, t.real)
		}
	}
	return list
}

func redirected(from, path string, l link, real string) *Error {
	return invalid(
		fmt.Sprintf("a program may have made the link; if it leads where you want, name that path instead: %q", real),
		"%s %q goes through the symbolic link %q (to %q), and the policy lets programs write there", from, path, l.place, l.text)
}

// Follower returns a function that resolves a host path which the launcher will use outside. The error is an *Error if the
// path goes through a link that the view lets programs make; then the path that is returned is that link's own. The path
// need not exist.
func (v *View) Follower(tree Tree) func(from, path string) (string, error) {
	sources := slices.Clone(v.writable)
	for _, m := range v.Mounts {
		if m.Kind == MountBind && m.Source != "" && m.Writable {
			sources = append(sources, m.Source)
		}
	}
	tree = &memoTree{Tree: tree, seen: map[string]statResult{}}
	h := newHands(tree, newPlaces(tree, tree.Mounts()), sources)
	return func(from, path string) (string, error) {
		t, _ := follow(tree, path)
		if l, ok := h.first(t.links); ok {
			return l.place, redirected(from, path, l, t.real)
		}
		return t.real, nil
	}
}

// Held returns a function that reports what of a host path a program of an earlier sandbox of the policy may have made: a symbolic link
// on the way, and the file itself.
func Held(tree Tree, p Policy) func(path string) (link, file bool) {
	c := newCompiler(Request{Policy: p, Tree: tree})
	return func(path string) (link, file bool) {
		t, _ := follow(c.tree, path)
		_, link = c.hands.first(t.links)
		return link, c.hands.hold(join(t.real, "x")) // a file of a name of its own in it, or below
	}
}
