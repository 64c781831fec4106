package rootfs

// inode is the identity of a host file.
type inode struct{ dev, ino uint64 }

// eachHardLink calls found for every name, in all that the view shows of the host, of a file that is wanted. It is a walk
// through the whole view, the base included, so it is only done when something is wanted.
func (c *compiler) eachHardLink(wanted map[inode]string, found func(host, from string)) {
	if len(wanted) == 0 {
		return
	}
	w := &linkWalk{c.tree, c.scene, map[string]bool{}, wanted, found}
	shown := c.scene.hostNames()
	for _, mp := range c.mountPoints {
		w.skip[mp] = true // a file system that is not shown is not looked at: a dead network mount would hang
		for range shown(mp) {
			w.skip[mp] = false
		}
	}
	var roots []string
	for _, m := range c.scene.mounts {
		if m.Source != "" && !m.Pin {
			roots = append(roots, m.Source)
		}
	}
	walked := map[string]bool{}
	for _, root := range sortedUnique(roots) { // parents first
		nested := false
		for up := range ups(root) {
			nested = nested || walked[up]
		}
		if !nested || w.skip[root] {
			w.skip[root] = false
			w.walk(root)
			walked[root] = true
		}
	}
}

type linkWalk struct {
	tree   *memoTree
	scene  *scene
	skip   map[string]bool
	wanted map[inode]string
	found  func(host, from string)
}

func (w *linkWalk) walk(p string) {
	if w.skip[p] {
		return
	}
	info, err := w.tree.Tree.Lstat(p) // not remembered: a walk may be long
	if err != nil {
		return
	}
	if !info.Mode.IsDir() {
		if from, ok := w.wanted[inode{info.Dev, info.Ino}]; ok {
			w.found(p, from)
		}
		return
	}
	names, err := w.tree.ReadDir(p)
	if err != nil {
		return // what the launcher cannot read the program cannot either
	}
	for _, name := range names {
		w.walk(join(p, name))
	}
}
