package spec

import (
	"fmt"
	"slices"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// cover hides a directory that the host has mounted something on, in a grant that is shown without that.
type cover struct {
	LeftOut
	grant string // inside
	mount rootfs.Mount
}

// coversOf hides what is left out of a grant, where the grant would show it.
func coversOf(v *rootfs.View, grant rootfs.Mount, left []LeftOut) []cover {
	const size, inodes, mode = 1 << 20, 4096, 0o555 // mount points can be made in it
	var list []cover
	shown := unmasked(v)
	for _, l := range left {
		if !pathname.Within(l.Path, grant.Source) {
			continue
		}
		m := rootfs.Mount{Kind: rootfs.MountMask, Target: pathname.Rebase(l.Path, grant.Source, grant.Target), LeftOut: true, From: grant.From}
		if l.Dir {
			m.Kind, m.Dir, m.Size, m.Inodes, m.Mode = rootfs.MountTmpfs, true, size, inodes, mode
		}
		if at := shown.Cover(m.Target); at != nil && at.Target == grant.Target {
			list = append(list, cover{l, grant.Target, m})
		}
	}
	return list
}

// unmasked has the mounts that show something, without masks and pins.
func unmasked(v *rootfs.View) rootfs.ByTarget {
	shown := rootfs.ByTarget{}
	for _, m := range v.Mounts {
		if !m.Pin && (m.Kind != rootfs.MountMask || m.LeftOut) {
			shown[m.Target] = &m
		}
	}
	return shown
}

// leaveOut puts the covers into the view, each right after its grant. Masks and pins of what is left out have nothing to stand on.
func leaveOut(plan *Plan, covers []cover) error {
	if len(covers) == 0 {
		return nil
	}
	v := plan.View
	for _, c := range covers {
		grant := slices.IndexFunc(v.Mounts, func(m rootfs.Mount) bool { return m.Target == c.grant && !m.Pin })
		v.Mounts = slices.Insert(v.Mounts, grant+1, c.mount)
	}
	shown := unmasked(v)
	gone := func(inside string) bool {
		m := shown.Cover(inside)
		return m != nil && m.LeftOut
	}
	v.Mounts = slices.DeleteFunc(v.Mounts, func(m rootfs.Mount) bool {
		return !m.LeftOut && (m.Pin || m.Kind == rootfs.MountMask) && gone(m.Target)
	})
	denied := func(d rootfs.Denied) bool { return gone(d.Inside) }
	v.Absent, v.Masked = slices.DeleteFunc(v.Absent, denied), slices.DeleteFunc(v.Masked, denied)
	if m := shown.Cover(v.Workdir); m != nil && m.LeftOut {
		i := slices.IndexFunc(covers, func(c cover) bool { return c.mount.Target == m.Target })
		return fault.New(fault.GrantNotIdmapped, fmt.Sprintf("choose another workdir, or grant it on its own: files.read = [%q] shows what everybody may read there", covers[i].Path),
			"the working directory %q lies in %q, which is mounted below %s and left out: %s", v.Workdir, covers[i].Path, m.From, covers[i].Why)
	}
	plan.Warnings = append(plan.Warnings, warningsOf(covers)...)
	return nil
}

// warningsOf says what is left out, each mount once.
func warningsOf(covers []cover) []string {
	const most = 5
	var said, paths []string
	for _, c := range covers {
		if slices.Contains(paths, c.Path) {
			continue
		}
		if paths = append(paths, c.Path); len(paths) > most {
			continue
		}
		said = append(said, fmt.Sprintf("%s: what is mounted at %q is left out, and a program finds it empty: %s", c.mount.From, c.Path, c.Why))
	}
	if more := len(paths) - most; more > 0 {
		said = append(said, fmt.Sprintf("files: and %d more mounts are left out", more))
	}
	return said
}
