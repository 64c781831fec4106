package rootfs

// addGuards shows the files of Request.Guarded read-only wherever a writable grant would show them, under further hard links
// within the grants too, and pins the directories above: else a program could move one away and put its own in its place.
func (c *compiler) addGuards() error {
	guards := map[string]string{} // host path → what it is
	linked := map[inode]string{}
	for _, g := range sortedGrants(c.Guarded) {
		info, err := c.tree.Lstat(g.Path)
		if err != nil {
			continue // what is not there cannot be changed
		}
		note(guards, g.Path, g.From)
		if info.Mode.IsRegular() && info.Nlink > 1 {
			linked[inode{info.Dev, info.Ino}] = g.From
		}
	}
	c.eachHardLink(linked, func(host, from string) { note(guards, host, from) })
	for target, m := range c.guardMounts(guards) {
		c.scene.mount(&m)
		c.classes[target] = classDeny
	}
	return nil
}

func (c *compiler) guardMounts(guards map[string]string) map[string]Mount {
	names := c.scene.hostNames()
	mounts := map[string]Mount{}
	for host, from := range guards {
		info, err := c.tree.Lstat(host)
		if err != nil {
			continue
		}
		for inside, m := range names(host) {
			if m.Writable && inside != m.Target {
				mounts[inside] = Mount{Kind: MountBind, Source: host, Target: inside, Dir: info.Mode.IsDir(), From: from}
			}
		}
	}
	return mounts
}
