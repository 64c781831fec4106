package rootfs

import (
	"fmt"
	"slices"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// ForbidExecution marks the mounts of all that the program can write: also of read-only ones that show the same files. The error says which
// mount shows such files beside others.
func (v *View) ForbidExecution(tree hostfs.Tree) error {
	h, sources := v.writables(tree)
	v.Mounts = slices.Clone(v.Mounts)
	for i := range v.Mounts {
		m := &v.Mounts[i]
		m.NoExec = !m.Pin && (m.Writable || m.Kind == MountTmpfs || m.Source != "" && (h.names[m.Source] || h.MayReplace(m.Source)))
	}
	for _, s := range sources {
		for _, name := range v.Inside(s) {
			if p, err := v.Lookup(tree, name); err == nil && p.Mount != nil && !p.Mount.NoExec && !p.Mount.Pin {
				return fmt.Errorf("%s of the program is %s, below %s, where files could be mapped as code", pathname.Printable(name), pathname.Printable(s), p.Mount.From)
			}
		}
	}
	return nil
}

// Changeable returns a function that says how the program could change what a file of the host has in it; empty: it cannot.
func (v *View) Changeable(tree hostfs.Tree) func(p Place) string {
	h, sources := v.writables(tree)
	return func(p Place) string {
		info, err := tree.Lstat(p.Host)
		switch {
		case err != nil:
			return err.Error()
		case p.Writable, h.MayReplace(p.Host), h.names[p.Host], h.nodes[info.Inode()]:
			return "it is in a grant that programs can write"
		case info.Nlink > 1:
			if link := h.hardLink(p.Host, info.Inode(), sources); link != "" {
				return fmt.Sprintf("%s is a hard link of it, in a grant that programs can write", pathname.Printable(link))
			}
		}
		return ""
	}
}
