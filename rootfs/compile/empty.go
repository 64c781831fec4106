package compile

import "github.com/sandboxrun/sandboxrun/rootfs"

// addEmpty puts an empty directory that cannot be written over each directory of Policy.Empty, under every name that the view has
// for it. It is a small tmpfs, so that what the policy shows below can be mounted in it.
func (c *compiler) addEmpty() error {
	dirs := map[string]string{}
	for _, g := range sortedGrants(c.Policy.Empty) {
		note(dirs, g.Path, g.From)
		for _, other := range c.locations.Parts(g.Path) {
			note(dirs, other, g.From)
		}
	}
	names := c.index.HostNames()
	list := map[string]rootfs.Mount{}
	for host, from := range dirs {
		if info, err := c.tree.Lstat(host); err != nil || !info.Mode.IsDir() {
			continue
		}
		for inside := range names(host) {
			m := rootfs.Mount{Target: inside, Dir: true, From: from}
			openMask(&m)
			list[inside] = m
		}
	}
	for target, m := range list {
		if shown := c.index.Mounts[target]; shown != nil && c.classes[target] >= classRead {
			continue // the policy names this very directory
		}
		c.index.Add(&m)
		c.classes[target] = classHide
	}
	return nil
}
