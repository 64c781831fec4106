package compile

import (
	"cmp"
	"io/fs"
	"iter"
	"maps"
	"slices"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// pinner makes mount points, of themselves, of what a program could otherwise move, replace or remove from under the
// policy: the kernel refuses to rename or remove a directory entry on which something is mounted in the mount namespace of
// the caller, by whatever path it is reached (EBUSY).
type pinner struct {
	*compiler
	names func(host string) iter.Seq2[string, *rootfs.Mount]
	done  map[string]bool // host paths
	pins  map[string]*rootfs.Mount
}

// addPins pins, wherever a program may write, the sources of binds, the directories above sources and targets of all
// mounts, and the links on the way of denies. Else a program could move a directory away, and the next sandbox of the
// policy would show under the old name something else than the policy means, and under the new name what it hides. The cost
// is one mount for each directory between a writable grant and what is mounted in it.
func (c *compiler) addPins() error {
	p := &pinner{c, c.index.HostNames(), map[string]bool{}, map[string]*rootfs.Mount{}}
	for _, target := range slices.Sorted(maps.Keys(c.index.Mounts)) {
		m := c.index.Mounts[target]
		if m.Source != "" {
			p.path(m.Source, m.From)
		}
		if up := c.index.Cover(pathname.Parent(target)); up != nil && up.Source != "" {
			p.path(pathname.Rebase(pathname.Parent(target), up.Target, up.Source), m.From)
		}
	}
	for _, host := range slices.Sorted(maps.Keys(c.replaceable)) {
		p.path(host, c.replaceable[host])
	}
	for target, m := range p.pins {
		c.index.Add(m)
		c.classes[target] = classWrite
	}
	return nil
}

// path pins a host path and the directories above it, under each name that another mount of the host gives them.
func (p *pinner) path(host, from string) {
	for up := range pathname.Ups(host) {
		if p.done[up] {
			return
		}
		p.done[up] = true
		for _, name := range append(p.locations.Others(up), up) {
			p.pin(name, from)
		}
	}
}

// pin mounts a host path on itself at one path at which the program may write: that it is a mount point there holds under
// all its names.
func (p *pinner) pin(host, from string) {
	if _, ok := p.locations.Visible[host]; ok {
		return // binds take the host's own mounts along
	}
	at, writable := "", false
	for inside, m := range p.names(host) {
		if m.Writable && inside != m.Target && (!writable || inside < at) {
			at, writable = inside, true
		}
	}
	if !writable {
		return
	}
	info, err := p.tree.Lstat(host)
	if err != nil {
		return // gone since: what needs it fails by itself
	}
	p.pins[at] = &rootfs.Mount{
		Kind: rootfs.MountBind, Source: host, Target: at, Writable: true, Dir: info.Mode.IsDir(), Pin: true,
		Link: info.Mode&fs.ModeSymlink != 0, From: cmp.Or(from, rootfs.FromDefault),
	}
}
