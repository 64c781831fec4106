package spec

import (
	"path"
	"path/filepath"

	"github.com/sandboxrun/sandboxrun/rootfs"
)

// Cover answers which mount of a view shows a path. It takes time by the depth of the path, however many mounts there are; a view
// that changes needs another one.
type Cover struct {
	nearest map[string]*rootfs.Mount // by target
	shown   map[string]*rootfs.Mount // the same without masks
}

// CoverOf looks at all mounts of a view once.
func CoverOf(v *rootfs.View) *Cover {
	c := &Cover{nearest: make(map[string]*rootfs.Mount, len(v.Mounts)), shown: make(map[string]*rootfs.Mount, len(v.Mounts))}
	for i := range v.Mounts {
		m := &v.Mounts[i]
		if c.nearest[m.Target] == nil {
			c.nearest[m.Target] = m
		}
		if m.Kind != rootfs.MountMask && c.shown[m.Target] == nil {
			c.shown[m.Target] = m
		}
	}
	return c
}

// Mount is the mount that shows what is at a path; nil where that is the sandbox's own root.
func (c *Cover) Mount(inside string) *rootfs.Mount { return coverOf(c.nearest, inside) }

// HostPath is what of the host a bind shows at a path inside, whatever masks lie over it; empty where no bind does.
func (c *Cover) HostPath(inside string) string {
	m := coverOf(c.shown, inside)
	if m == nil || m.Kind != rootfs.MountBind || m.Source == "" {
		return ""
	}
	return path.Join(m.Source, path.Clean(inside)[len(m.Target):])
}

func coverOf(targets map[string]*rootfs.Mount, inside string) *rootfs.Mount {
	for p := path.Clean(inside); ; p = path.Dir(p) {
		if m := targets[p]; m != nil || p == "/" || p == "." {
			return m
		}
	}
}

// below reports whether a path is a directory or lies in it.
func below(inside, dir string) bool {
	rel, err := filepath.Rel(dir, inside)
	return err == nil && filepath.IsLocal(rel)
}
