package compile

import (
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// eachHardLink calls found for every name, in all that the view shows of the host, of a file that is wanted. It is a walk
// through the whole view, the base included, so it is only done when something is wanted.
func (c *compiler) eachHardLink(wanted map[hostfs.Inode]string, found func(host, from string)) {
	if len(wanted) == 0 {
		return
	}
	w := &hostfs.HardLinks{Tree: c.tree.Tree, Skip: map[string]bool{}, Wanted: wanted, Found: found} // the tree without a memory, because a walk may be long
	shown := c.index.HostNames()
	for _, mp := range c.mountPoints {
		w.Skip[mp] = true // a file system that is not shown is not looked at: a dead network mount would hang
		for range shown(mp) {
			w.Skip[mp] = false
		}
	}
	var roots []string
	for _, m := range c.index.Mounts {
		if m.Source != "" && !m.Pin {
			roots = append(roots, m.Source)
		}
	}
	walked := map[string]bool{}
	for _, root := range pathname.SortedUnique(roots) { // parents first
		nested := false
		for up := range pathname.Ups(root) {
			nested = nested || walked[up]
		}
		if !nested || w.Skip[root] {
			w.Skip[root] = false
			w.Walk(root)
			walked[root] = true
		}
	}
}
