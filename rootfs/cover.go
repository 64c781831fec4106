package rootfs

import (
	"path"

	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// ByTarget has the mounts of a view by their targets. A question takes time by the depth of the path, however many mounts there are.
// A view that changes needs another one.
type ByTarget map[string]*Mount

// ByTarget looks at all mounts once.
func (v *View) ByTarget() ByTarget {
	b := make(ByTarget, len(v.Mounts))
	for i := range v.Mounts {
		b[v.Mounts[i].Target] = &v.Mounts[i]
	}
	return b
}

// Cover is the mount that shows what is at a path inside, or nil where that is the sandbox's own root. A mount never covers one that
// is above it, so the nearest target decides.
func (b ByTarget) Cover(inside string) *Mount {
	for up := range pathname.Ups(path.Clean(inside)) {
		if m := b[up]; m != nil {
			return m
		}
	}
	return nil
}

// HostPath is the host path that a bind shows at a path inside, whatever masks lie over it; empty where no bind does.
func (b ByTarget) HostPath(inside string) string {
	inside = path.Clean(inside)
	for up := range pathname.Ups(inside) {
		m := b[up]
		if m == nil || m.Kind == MountMask {
			continue
		}
		if m.Kind != MountBind || m.Source == "" {
			return ""
		}
		return pathname.Rebase(inside, m.Target, m.Source)
	}
	return ""
}
