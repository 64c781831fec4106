package explain

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// maxCounted is how many files are looked at for the size of one directory; larger ones have none.
const maxCounted = 2000

// Node is one place of a view that is not simply as the place around it.
type Node struct {
	Path     string           `json:"path"`
	Kind     rootfs.PlaceKind `json:"kind"`
	Dir      bool             `json:"dir,omitempty"`
	Writable bool             `json:"writable,omitempty"`
	Denied   bool             `json:"denied,omitempty"` // by files.deny; other masks are the base's
	Absent   bool             `json:"absent,omitempty"` // denied, and not there now
	Host     string           `json:"host,omitempty"`   // what is shown, where its path is another one
	Link     string           `json:"link,omitempty"`   // what a symbolic link says
	Size     int64            `json:"size,omitempty"`   // bytes: of a file or small directory; what memory holds at most
	Rule     string           `json:"rule,omitempty"`   // as in Explanation
	From     string           `json:"from,omitempty"`
	Why      string           `json:"why,omitempty"` // of what base "host" hides
	Depth    int              `json:"depth"`         // how many nodes are above it
	Name     string           `json:"name"`          // its path below the nearest of these
}

// Nodes is the whole view as a tree, each node before those below it.
func (x *Explainer) Nodes() []Node {
	x.prepare()
	byPath := map[string]Node{}
	for p, e := range x.seen.Entries {
		if x.seen.Cover(p) == nil || p == "/" {
			byPath[p] = x.entryNode(e)
		}
	}
	for target, m := range x.seen.Mounts {
		if !m.Pin {
			byPath[target] = x.mountNode(m)
		}
	}
	for _, d := range x.View.Absent {
		r := x.rules[d.From]
		if d.From == rootfs.FromState {
			r.key = rootfs.FromDefault
		}
		byPath[d.Inside] = Node{Path: d.Inside, Kind: rootfs.PlaceMask, Denied: true, Absent: true, Rule: r.key, From: r.from}
	}
	x.addHidden(byPath)
	for _, p := range []string{"/proc", "/dev"} {
		byPath[p] = Node{Path: p, Kind: rootfs.PlaceOwn, Dir: true, Rule: rootfs.FromDefault}
	}
	if x.NoProc {
		byPath["/proc"] = Node{Path: "/proc", Kind: rootfs.PlaceMask, Dir: true, Rule: keyProc}
	}
	return nest(byPath)
}

// addHidden adds what base "host" hides.
func (x *Explainer) addHidden(byPath map[string]Node) {
	for _, h := range x.View.Hidden {
		n, ok := byPath[h.Path]
		switch m := x.seen.Mounts[h.Path]; {
		case ok && (m == nil || m.Kind != rootfs.MountMask): // a grant shows it, or the sandbox has its own
		case !ok && x.seen.Cover(h.Path) != nil: // something else is there
		default:
			n.Path, n.Kind, n.Dir, n.Why = h.Path, rootfs.PlaceMask, true, h.Why
			byPath[h.Path] = n
		}
	}
}

// nest puts nodes in order and finds what is above each.
func nest(byPath map[string]Node) []Node {
	list := make([]Node, 0, len(byPath))
	for _, n := range byPath {
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b Node) int {
		return slices.Compare(strings.Split(a.Path, "/"), strings.Split(b.Path, "/"))
	})
	for i, n := range list {
		list[i].Name = n.Path
		for up := pathname.Parent(n.Path); n.Path != "/"; up = pathname.Parent(up) {
			above, ok := byPath[up]
			if !ok {
				continue
			}
			list[i].Name = strings.TrimPrefix(n.Path[len(up):], "/")
			list[i].Depth = byPath[above.Path].Depth + 1
			break
		}
		byPath[n.Path] = list[i]
	}
	return list
}

func (x *Explainer) entryNode(e rootfs.Entry) Node {
	n := Node{Path: e.Path, Kind: rootfs.PlaceRoot, Dir: e.Kind == rootfs.EntryDir}
	switch e.Kind {
	case rootfs.EntrySymlink:
		n.Link = e.Content
	case rootfs.EntryFile:
		x2 := &Explanation{Real: e.Path}
		x.whyEntry(x2)
		n.Rule, n.From, n.Size = x2.Rule, x2.From, int64(len(e.Content))
		if n.Rule == rootfs.FromDefault {
			n.Kind = rootfs.PlaceGenerated
		}
	}
	return n
}

func (x *Explainer) mountNode(m *rootfs.Mount) Node {
	r := x.ruleOf(m)
	n := Node{Path: m.Target, Dir: m.Dir, Writable: m.Writable, Rule: r.key, From: r.from}
	switch {
	case m.Kind == rootfs.MountMask:
		n.Kind, n.Denied = rootfs.PlaceMask, r.key == keyDeny
	case m.Kind == rootfs.MountTmpfs:
		n.Kind, n.Size, n.Writable = rootfs.PlaceTmpfs, m.Size, m.Mode&0o222 != 0
	case m.Source == "":
		n.Kind, n.Size = rootfs.PlaceGenerated, int64(len(m.Content))
	default:
		n.Kind = rootfs.PlaceHost
		if m.Source != m.Target {
			n.Host = m.Source
		}
		left := maxCounted
		if size, ok := x.size(m.Source, &left); ok && r.key != keyBase {
			n.Size = size
		}
	}
	return n
}

// size adds up the files below a host path. It gives up where there are many, since nobody waits for a number.
func (x *Explainer) size(host string, left *int) (int64, bool) {
	if *left--; *left < 0 {
		return 0, false
	}
	info, err := x.Tree.Lstat(host)
	switch {
	case err != nil:
		return 0, false
	case !info.Mode.IsDir():
		return info.Size, true
	}
	names, err := x.Tree.ReadDir(host)
	if err != nil || len(names) > *left {
		return 0, false
	}
	var sum int64
	for _, name := range names {
		n, ok := x.size(pathname.Join(host, name), left)
		if !ok {
			return 0, false
		}
		sum += n
	}
	return cmp.Or(sum, 0), true
}
