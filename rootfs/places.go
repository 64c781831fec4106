package rootfs

import (
	"cmp"
	"maps"
	"slices"
)

// HostMount is a mount of the host, a line of mountinfo.
type HostMount struct {
	ID, Parent int
	Dev        string // of the file system: "8:1"
	Root       string // the directory or file of the file system that is mounted
	Target     string // the mount point
}

// hostPlace is a host path in terms that a second mount does not change: the file system and the path in it.
type hostPlace struct{ dev, path string }

// places translates host paths to places and back. One file system may be mounted several times, and a bind mount shows a
// part of one under another name; the names of a file differ, its place does not.
type places struct {
	tree    Tree
	visible map[string]HostMount   // by mount point: the mount that is on top there
	byDev   map[string][]HostMount // the visible ones
}

func newPlaces(tree Tree, list []HostMount) *places {
	p := &places{tree: tree, visible: map[string]HostMount{}, byDev: map[string][]HostMount{}}
	targets, ids := map[string][]HostMount{}, map[int]bool{}
	for _, m := range list {
		targets[m.Target] = append(targets[m.Target], m)
		ids[m.ID] = true
	}
	order := slices.SortedFunc(maps.Keys(targets), func(a, b string) int {
		return cmp.Or(cmp.Compare(depth(a), depth(b)), cmp.Compare(a, b))
	})
	for _, target := range order {
		p.stack(target, targets[target], ids)
	}
	return p
}

// stack finds the topmost mount of a mount point: its parent is the mount below it. A mount whose parent is itself
// covered is not visible.
func (p *places) stack(target string, list []HostMount, ids map[int]bool) {
	under, found := p.mount(parent(target)), false
	for len(list) > 0 {
		i := slices.IndexFunc(list, func(m HostMount) bool {
			return m.Parent == under.ID || !found && (!ids[m.Parent] || target == "/")
		})
		if i < 0 {
			break
		}
		under, found = list[i], true
		list = slices.Delete(slices.Clone(list), i, i+1)
	}
	if found {
		p.visible[target] = under
		p.byDev[under.Dev] = append(p.byDev[under.Dev], under)
	}
}

// mount is the mount that a path lies in.
func (p *places) mount(host string) HostMount {
	for up := range ups(host) {
		if m, ok := p.visible[up]; ok {
			return m
		}
	}
	return HostMount{Root: "/", Target: "/"}
}

// of is the place of a host path without links.
func (p *places) of(host string) hostPlace {
	m := p.mount(host)
	return hostPlace{m.Dev, rebase(host, m.Target, m.Root)}
}

// others lists the further host paths of what is at a host path.
func (p *places) others(host string) []string { return p.further(host, false) }

// parts is others, and the host paths of parts: of directories below that are mounted elsewhere, and of what is mounted
// below. The parts that /proc, /dev and /sys have are left out: no view shows these.
func (p *places) parts(host string) []string {
	list := p.further(host, true)
	for target := range p.visible {
		if below(target, host) {
			list = append(list, p.further(target, true)...)
		}
	}
	return slices.DeleteFunc(sortedUnique(list), func(name string) bool { return within(name, host) || kernelPlace(name) != "" })
}

func (p *places) further(host string, parts bool) []string {
	at := p.of(host)
	same := p.byDev[at.dev]
	if len(same) < 2 { // nothing of the file system has a second name
		return nil
	}
	var list []string
	add := func(name string, place hostPlace) {
		if !within(name, host) && p.of(name) == place {
			list = append(list, name)
		}
	}
	for _, m := range same {
		switch {
		case within(at.path, m.Root):
			add(rebase(at.path, m.Root, m.Target), at)
		case parts && below(m.Root, at.path):
			add(m.Target, hostPlace{m.Dev, m.Root})
		}
	}
	return sortedUnique(append(list, p.byNumber(host, same)...))
}

// byNumber finds the names that only the numbers of directories tell: NFS says "/" of whatever it has mounted.
func (p *places) byNumber(host string, same []HostMount) []string {
	roots := map[inode][]string{}
	for _, m := range same {
		if info, err := p.tree.Lstat(m.Target); err == nil {
			node := inode{info.Dev, info.Ino}
			roots[node] = append(roots[node], m.Target)
		}
	}
	var list []string
	for up := range ups(host) {
		info, err := p.tree.Lstat(up)
		if err != nil {
			continue
		}
		for _, target := range roots[inode{info.Dev, info.Ino}] {
			if name := rebase(host, up, target); !within(name, host) {
				list = append(list, name)
			}
		}
	}
	return list
}
