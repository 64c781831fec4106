package compile

import (
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// addGuards shows the files of Request.Guarded read-only wherever a writable grant would show them, under further hard links
// within the grants too, and pins the directories above: else a program could replace one.
func (c *compiler) addGuards() error {
	guards := map[string]string{} // host path → what it is
	linked := map[hostfs.Inode]string{}
	for _, g := range sortedGrants(c.Guarded) {
		info, err := c.tree.Lstat(g.Path)
		if err != nil {
			continue // what is not there cannot be changed
		}
		note(guards, g.Path, g.From)
		if info.Mode.IsRegular() && info.Nlink > 1 {
			linked[info.Inode()] = g.From
		}
	}
	c.eachHardLink(linked, func(host, from string) { note(guards, host, from) })
	for target, m := range c.guardMounts(guards) {
		c.index.Add(&m)
		c.classes[target] = classDeny
	}
	return nil
}

func (c *compiler) guardMounts(guards map[string]string) map[string]rootfs.Mount {
	names := c.index.HostNames()
	mounts := map[string]rootfs.Mount{}
	for host, from := range guards {
		info, err := c.tree.Lstat(host)
		if err != nil {
			continue
		}
		for inside, m := range names(host) {
			if m.Writable && inside != m.Target {
				mounts[inside] = rootfs.Mount{Kind: rootfs.MountBind, Source: host, Target: inside, Dir: info.Mode.IsDir(), From: from}
			}
		}
	}
	return mounts
}
