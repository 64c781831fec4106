package spec

import (
	"fmt"
	"slices"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

const noProcKey = "processes.proc = false"

// noProc refuses a policy without /proc that needs it.
func noProc(p *policy.Policy, h *Host) error {
	if p.Processes.Proc {
		return nil
	}
	if p.Processes.Userns {
		return fault.New(fault.PolicyInvalid, "leave one of the two out",
			"processes.userns = true and %s exclude each other: a program maps the users of its user namespace by a file of /proc, and bwrap and unshare do not start without it", noProcKey)
	}
	return leadsToProc(h.Tree, named(p))
}

// leadsToProc refuses paths that are to be in the view and lie in /proc.
func leadsToProc(tree hostfs.Tree, list []rootfs.Grant) error {
	for _, g := range list {
		if g.Path == "" {
			continue
		}
		t, _ := hostfs.Follow(tree, g.Path) // Compile judges the error
		if pathname.KernelPlace(t.Touches(g.Path)...) == "/proc" {
			return fault.New(fault.PolicyInvalid, "leave one of the two out", "%s %q lies in or goes through /proc, and %s leaves the program none", g.From, g.Path, noProcKey)
		}
	}
	return nil
}

// named are the paths of a policy that are to be in the view. Those of its views are judged with these.
func named(p *policy.Policy) []rootfs.Grant {
	f := &p.Files
	list := slices.Concat(wanted(f.Read, f.Binds), f.Write, []rootfs.Grant{f.Workdir}, p.Processes.Execute)
	for _, t := range f.Tmpfs {
		list = append(list, rootfs.Grant{Path: t.Path, From: t.From})
	}
	if w := f.Workspace; w != nil {
		list = append(list, rootfs.Grant{Path: w.Path, From: w.From})
		if w.Source != rootfs.SourceTmpfs && w.Source != rootfs.SourceDisk {
			list = append(list, rootfs.Grant{Path: w.Source, From: w.From})
		}
	}
	return list
}

func wanted(read []rootfs.Grant, binds []rootfs.Bind) []rootfs.Grant {
	list := slices.Clone(read)
	for _, b := range binds {
		list = append(list, rootfs.Grant{Path: b.Source, From: b.From}, rootfs.Grant{Path: b.Target, From: b.From})
	}
	return list
}

// showsProcfs refuses a view that shows a procfs which the host has mounted elsewhere, as for a chroot: in a directory that is shown, or around
// one.
func showsProcfs(v *rootfs.View, mounts []hostfs.Mount) error {
	top := rootfs.ByTarget{}
	for i := range v.Mounts {
		if m := &v.Mounts[i]; !m.Pin {
			top[m.Target] = m
		}
	}
	for i := range v.Mounts {
		m := &v.Mounts[i]
		if m.Pin || m.Kind != rootfs.MountBind || m.Source == "" {
			continue
		}
		if at := procfsIn(m, top, mounts); at != "" {
			return fault.New(fault.PolicyInvalid, fmt.Sprintf("hide it with files.deny = [%q], unmount it, or leave one of the two out", at),
				"%s %q shows the procfs that this machine has mounted at %q, and %s leaves the program none", m.From, m.Source, at, noProcKey)
		}
	}
	return nil
}

// procfsIn is where the host has a procfs mounted that a bind shows, by itself and not under another mount of the view; empty if nowhere.
func procfsIn(m *rootfs.Mount, top rootfs.ByTarget, mounts []hostfs.Mount) string {
	if around := mountedAt(mounts, m.Source); around.Kind == "proc" {
		return around.Target
	}
	for _, h := range mounts {
		if h.Kind != "proc" || !pathname.Within(h.Target, m.Source) || mountedAt(mounts, h.Target).Kind != "proc" {
			continue
		}
		inside := pathname.Rebase(h.Target, m.Source, m.Target)
		if pathname.KernelPlace(inside) != "/proc" && top.Cover(inside) == m {
			return h.Target
		}
	}
	return ""
}

// mountedAt is the mount that shows what is at a path of the host: of the nearest ones the last.
func mountedAt(mounts []hostfs.Mount, host string) (nearest hostfs.Mount) {
	for _, h := range mounts {
		if pathname.Within(host, h.Target) && len(h.Target) >= len(nearest.Target) {
			nearest = h
		}
	}
	return nearest
}
