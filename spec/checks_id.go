package spec

import (
	"io/fs"
	"path"

	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// onHost returns the program's ids on the host, the owner on disk of its files in grants, and why it may be root there.
func (id identity) onHost(h *Host) (is, owner [2]uint32, mayOwn string) {
	caller := [2]uint32{uint32(h.UID), uint32(h.GID)}
	switch {
	case id.own:
		return [2]uint32{uint32(id.uid), uint32(id.gid)}, caller, ""
	case id.uid != 0: // as the policy names it
		is = [2]uint32{uint32(id.uid), uint32(id.gid)}
		return is, is, ""
	case h.UID != 0:
		return caller, caller, ""
	case h.Program != 0, h.NotApart != "":
		return caller, caller, "the policy does with a program that is root to the host"
	}
	return caller, caller, "the launcher is root of a user namespace, which may be the host's root too"
}

// mostForeign is the number of files on mounts that are not grants that the check looks at.
const mostForeign = 40

// foreign lists paths that the program must not be able to change: of each mount that is not a grant its mount point, and of each
// directory one entry.
func foreign(p *policy.Policy, tree hostfs.Tree, plan *Plan) []hooks.Path {
	list := foreignOwn(plan)
	cover := plan.View.ByTarget()
	for _, m := range plan.View.Mounts {
		if len(list) >= mostForeign {
			break
		}
		if writableTmpfs(m) || granted(p, m) || m.Pin && m.Link {
			continue
		}
		it := hooks.Path{Inside: m.Target, Host: m.Source, Dir: m.Dir, Named: !inGrant(p, cover, path.Dir(m.Target))}
		list = append(list, it)
		if m.Kind == rootfs.MountBind && m.Dir {
			list = append(list, within(tree, m)...)
		}
	}
	list = list[:min(len(list), mostForeign)]
	for i := range list {
		list[i].Kind = hooks.Foreign
	}
	return list
}

// foreignOwn are those of them that the sandbox itself has.
func foreignOwn(plan *Plan) []hooks.Path {
	list := []hooks.Path{
		{Inside: "/", Dir: true},
		{Inside: "/dev", Dir: true, Named: true},
	}
	for _, d := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		list = append(list, hooks.Path{Inside: "/dev/" + d, Host: "/dev/" + d, Named: true})
	}
	if plan.Exec.NoProc {
		return append(list, hooks.Path{Inside: "/proc", Dir: true, Named: true})
	}
	list = append(list, hooks.Path{Inside: "/proc/version", Host: "/proc/version"}) // /proc itself belongs to the user that mounts it
	for _, f := range plan.Exec.Hide {
		if !HiddenProcDir(f) {
			list = append(list, hooks.Path{Inside: f}) // a device covers it
		}
	}
	return list
}

// inGrant reports whether a grant, or a file system of the program's own, shows a path.
func inGrant(p *policy.Policy, cover rootfs.ByTarget, inside string) bool {
	m := cover.Cover(inside)
	return m != nil && (granted(p, *m) || writableTmpfs(*m))
}

// writableTmpfs reports whether a program may write a tmpfs. Some exist only as parents of mount points.
func writableTmpfs(m rootfs.Mount) bool {
	const others = 0o002
	return m.Kind == rootfs.MountTmpfs && (m.Owned || m.Mode&others != 0)
}

// within returns an entry of a directory, and a directory beside it to which the entry cannot be renamed, because that directory is
// not empty. The entry must not be a program, because a change of its owner would remove its file capabilities.
func within(tree hostfs.Tree, m rootfs.Mount) []hooks.Path {
	const most = 20 // names that it looks at
	names, err := hostfs.SomeNames(tree, m.Source, most)
	if err != nil {
		return nil
	}
	var found []hooks.Path
	for _, name := range names {
		info, err := tree.Lstat(path.Join(m.Source, name))
		plain := err == nil && info.Mode.IsRegular() && info.Mode&(0o111|fs.ModeSetuid|fs.ModeSetgid) == 0
		if !plain && (err != nil || !info.Mode.IsDir()) {
			continue
		}
		if len(found) > 0 {
			if in, err := hostfs.SomeNames(tree, path.Join(m.Source, name), 1); err != nil || len(in) == 0 {
				continue
			}
			found[0].Beside = path.Join(m.Target, name)
			break
		}
		found = []hooks.Path{{Inside: path.Join(m.Target, name), Host: path.Join(m.Source, name), Named: true}}
	}
	return found
}
