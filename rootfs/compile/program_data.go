package compile

import (
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/rootfs/survey"
)

// addProgramData shows the data of installed programs outside of /usr, and the list of packages.
func (c *compiler) addProgramData() {
	for _, d := range survey.Data(c.Tree) {
		switch {
		case c.bases[d.Path] || c.wanted(d.Path) || c.writables.MayReplace(d.Path):
		case d.Dir && len(d.Copy) == 1: // it is empty
			c.addEntry(d.Copy[0])
		default:
			c.bindBase(d.Path, d.Path, d.Dir)
			if d.Copy != nil {
				c.small[d.Path] = d.Copy
			}
		}
	}
}

// copyTrees replaces the base's binds of small directories by copies in the sandbox's own root, where nothing else is mounted in them.
func (c *compiler) copyTrees(v *rootfs.View) {
	var copies []rootfs.Entry
	v.Mounts = slices.DeleteFunc(v.Mounts, func(m rootfs.Mount) bool {
		list, ok := c.small[m.Target]
		if !ok || m.Kind != rootfs.MountBind || m.Source != m.Target || c.classes[m.Target] != classBase || c.index.Above[m.Target] {
			return false
		}
		copies = append(copies, list...)
		return true
	})
	if len(copies) == 0 {
		return
	}
	v.Entries = slices.DeleteFunc(v.Entries, func(e rootfs.Entry) bool {
		return c.small[e.Path] != nil && slices.ContainsFunc(copies, func(n rootfs.Entry) bool { return n.Path == e.Path })
	})
	v.Entries = append(v.Entries, copies...)
	slices.SortFunc(v.Entries, func(a, b rootfs.Entry) int { return strings.Compare(a.Path, b.Path) })
}

// wanted reports whether the policy has something of its own to do in a directory for which the host's must stay away: a secret
// in it, or a target that the host does not have.
func (c *compiler) wanted(dir string) bool {
	for _, s := range c.Policy.Secrets {
		if t, _ := hostfs.Follow(c.tree, s.Path); pathname.Within(t.Real, dir) || pathname.Within(dir, t.Real) || pathname.Within(s.Path, dir) {
			return true
		}
	}
	made := func(p string) bool {
		if !pathname.Clean(p) || !pathname.Below(p, dir) {
			return false
		}
		_, err := hostfs.Follow(c.tree, p)
		return err != nil
	}
	return slices.ContainsFunc(c.Policy.Binds, func(b rootfs.Bind) bool { return made(b.Target) }) ||
		slices.ContainsFunc(c.Policy.Tmpfs, func(t rootfs.Tmpfs) bool { return made(t.Path) }) ||
		c.Policy.Workspace != nil && made(c.Policy.Workspace.Path)
}
