package spec

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
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
	for _, l := range left {
		rel, err := filepath.Rel(grant.Source, l.Path)
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		m := rootfs.Mount{Kind: rootfs.MountMask, Target: filepath.Join(grant.Target, rel), LeftOut: true, From: grant.From}
		if l.Dir {
			m.Kind, m.Dir, m.Size, m.Inodes, m.Mode = rootfs.MountTmpfs, true, size, inodes, mode
		}
		if at := shownBy(v.Mounts, m.Target); at != nil && at.Target == grant.Target {
			list = append(list, cover{l, grant.Target, m})
		}
	}
	return list
}

// shownBy is the mount that shows what is at a path, whatever masks lie over it.
func shownBy(mounts []rootfs.Mount, inside string) *rootfs.Mount {
	var found *rootfs.Mount
	for i, m := range mounts {
		if !m.Pin && (m.Kind != rootfs.MountMask || m.LeftOut) && below(inside, m.Target) && (found == nil || len(m.Target) > len(found.Target)) {
			found = &mounts[i]
		}
	}
	return found
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
	gone := func(inside string) bool {
		m := shownBy(v.Mounts, inside)
		return m != nil && m.LeftOut
	}
	v.Mounts = slices.DeleteFunc(v.Mounts, func(m rootfs.Mount) bool {
		return !m.LeftOut && (m.Pin || m.Kind == rootfs.MountMask) && gone(m.Target)
	})
	denied := func(d rootfs.Denied) bool { return gone(d.Inside) }
	v.Absent, v.Masked = slices.DeleteFunc(v.Absent, denied), slices.DeleteFunc(v.Masked, denied)
	if m := shownBy(v.Mounts, v.Workdir); m != nil && m.LeftOut {
		i := slices.IndexFunc(covers, func(c cover) bool { return c.mount.Target == m.Target })
		return fault.New(fault.GrantNotIdmapped, fmt.Sprintf("choose another workdir, or grant it on its own: files.read = [%q] shows what everybody may read there", covers[i].Path),
			"the working directory %q lies in %q, which is mounted below %s and left out: %s", v.Workdir, covers[i].Path, m.From, covers[i].Why)
	}
	plan.Warnings = append(plan.Warnings, saidOf(covers)...)
	return nil
}

// saidOf says what is left out, each mount once.
func saidOf(covers []cover) []string {
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
