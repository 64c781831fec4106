package hostfs

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// Location identifies a file in every mount namespace: the file system and the path in it. A file has one, also if several bind mounts
// show it.
type Location struct {
	Dev  string // major:minor of the file system
	Path string // within it
}

// Within reports whether l is dir or lies below it.
func (l Location) Within(dir Location) bool {
	return l.Dev == dir.Dev && pathname.Within(l.Path, dir.Path)
}

// Locate is the place of a path that lies in the mount. It is false if the path does not.
func (m Mount) Locate(p string) (Location, bool) {
	if !pathname.Within(p, m.Target) {
		return Location{}, false
	}
	return Location{m.Dev, pathname.Rebase(p, m.Target, m.Path)}, true
}

// Locations translates host paths to places and back. One file system may be mounted several times, and a bind mount shows a
// part of one under another name; the names of a file differ, its place does not.
type Locations struct {
	tree    Tree
	Visible map[string]Mount   // by mount point: the mount that is on top there
	byDev   map[string][]Mount // the visible ones
}

// NewLocations takes all mounts of a mount namespace, in the order of mountinfo.
func NewLocations(tree Tree, list []Mount) *Locations {
	p := &Locations{tree: tree, Visible: map[string]Mount{}, byDev: map[string][]Mount{}}
	targets, ids := map[string][]Mount{}, map[int]bool{}
	for _, m := range list {
		targets[m.Target] = append(targets[m.Target], m)
		ids[m.ID] = true
	}
	order := slices.SortedFunc(maps.Keys(targets), func(a, b string) int {
		return cmp.Or(cmp.Compare(pathname.Depth(a), pathname.Depth(b)), cmp.Compare(a, b))
	})
	for _, target := range order {
		p.stack(target, targets[target], ids)
	}
	return p
}

// stack finds the topmost mount of a mount point: its parent is the mount below it. A mount whose parent is itself
// covered is not visible.
func (p *Locations) stack(target string, list []Mount, ids map[int]bool) {
	under, found := p.Mount(pathname.Parent(target)), false
	for len(list) > 0 {
		i := slices.IndexFunc(list, func(m Mount) bool {
			return m.Parent == under.ID || !found && (!ids[m.Parent] || target == "/")
		})
		if i < 0 {
			break
		}
		under, found = list[i], true
		list = slices.Delete(slices.Clone(list), i, i+1)
	}
	if found {
		p.Visible[target] = under
		p.byDev[under.Dev] = append(p.byDev[under.Dev], under)
	}
}

// Mount is the mount that a path lies in.
func (p *Locations) Mount(host string) Mount {
	for up := range pathname.Ups(host) {
		if m, ok := p.Visible[up]; ok {
			return m
		}
	}
	return Mount{Location: Location{Path: "/"}, Target: "/"}
}

// Of is the place of a host path without links.
func (p *Locations) Of(host string) Location {
	l, _ := p.Mount(host).Locate(host)
	return l
}

// Others lists the further host paths of what is at a host path.
func (p *Locations) Others(host string) []string { return p.further(host, false) }

// Parts is others, and the host paths of parts: of directories below that are mounted elsewhere, and of what is mounted
// below. The parts that /proc, /dev and /sys have are left out: no view shows these.
func (p *Locations) Parts(host string) []string {
	list := p.further(host, true)
	for target := range p.Visible {
		if pathname.Below(target, host) {
			list = append(list, p.further(target, true)...)
		}
	}
	return slices.DeleteFunc(pathname.SortedUnique(list), func(name string) bool { return pathname.Within(name, host) || pathname.KernelPlace(name) != "" })
}

func (p *Locations) further(host string, parts bool) []string {
	at := p.Of(host)
	same := p.byDev[at.Dev]
	if len(same) < 2 { // nothing of the file system has a second name
		return nil
	}
	var list []string
	add := func(name string, place Location) {
		if !pathname.Within(name, host) && p.Of(name) == place {
			list = append(list, name)
		}
	}
	for _, m := range same {
		switch {
		case pathname.Within(at.Path, m.Path):
			add(pathname.Rebase(at.Path, m.Path, m.Target), at)
		case parts && pathname.Below(m.Path, at.Path):
			add(m.Target, m.Location)
		}
	}
	return pathname.SortedUnique(append(list, p.byNumber(host, same)...))
}

// byNumber finds the names that only the numbers of directories tell: NFS says "/" of whatever it has mounted.
func (p *Locations) byNumber(host string, same []Mount) []string {
	roots := map[Inode][]string{}
	for _, m := range same {
		if info, err := p.tree.Lstat(m.Target); err == nil {
			node := info.Inode()
			roots[node] = append(roots[node], m.Target)
		}
	}
	var list []string
	for up := range pathname.Ups(host) {
		info, err := p.tree.Lstat(up)
		if err != nil {
			continue
		}
		for _, target := range roots[info.Inode()] {
			if name := pathname.Rebase(host, up, target); !pathname.Within(name, host) {
				list = append(list, name)
			}
		}
	}
	return list
}
