package spec

import (
	"path"
	"slices"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// makeWay lets a program with its own id reach its grants. The base may show a directory above a grant that only root may search. To
// the program that directory looks empty, so an empty directory that it can search, with the grant in it, replaces it.
func makeWay(p *policy.Policy, h *Host, id identity, plan *Plan) {
	if !id.own {
		return
	}
	const size, inodes, mode = 1 << 20, 4096, 0o755
	cover := plan.View.ByTarget()
	for _, m := range plan.View.Mounts {
		if !granted(p, m) {
			continue
		}
		closed := topClosed(h.Tree, cover, m.Target)
		if closed == "" {
			continue
		}
		at := slices.IndexFunc(plan.View.Mounts, func(n rootfs.Mount) bool { return pathname.Within(n.Target, closed) })
		plan.View.Mounts = slices.Insert(slices.Clone(plan.View.Mounts), at, rootfs.Mount{
			Kind: rootfs.MountTmpfs, Target: closed, Dir: true, Size: size, Inodes: inodes, Mode: mode, From: p.Files.Base.From,
		})
		cover = plan.View.ByTarget()
	}
}

// topClosed is the topmost directory above a path that others may not search and that a bind shows without idmapping.
func topClosed(tree hostfs.Tree, cover rootfs.ByTarget, inside string) string {
	const search = 0o001
	top := ""
	for dir := path.Dir(inside); dir != "/"; dir = path.Dir(dir) {
		m := cover.Cover(dir)
		if m == nil || m.Kind != rootfs.MountBind || m.Source == "" || m.Idmapped {
			continue
		}
		info, err := tree.Lstat(path.Join(m.Source, dir[len(m.Target):]))
		if err == nil && info.Mode.IsDir() && info.Mode&search == 0 {
			top = dir
		}
	}
	return top
}
