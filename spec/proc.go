package spec

import (
	"maps"
	"slices"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// noProc refuses a policy without /proc that needs it.
func noProc(p *policy.Policy, h *Host) error {
	if p.Processes.Proc {
		return nil
	}
	const off = "processes.proc = false"
	if p.Processes.Userns {
		return fault.New(fault.PolicyInvalid, "leave one of the two out",
			"processes.userns = true and %s exclude each other: a program maps the users of its user namespace by a file of /proc, and bwrap and unshare do not start without it", off)
	}
	for _, g := range named(p) {
		if g.Path == "" {
			continue
		}
		t, _ := hostfs.Follow(h.Tree, g.Path) // Compile judges the error
		if pathname.KernelPlace(t.Touches(g.Path)...) == "/proc" {
			return fault.New(fault.PolicyInvalid, "leave one of the two out", "%s %q lies in or goes through /proc, and %s leaves the program none", g.From, g.Path, off)
		}
	}
	return nil
}

// named are the paths of a policy that are to be in the view.
func named(p *policy.Policy) []rootfs.Grant {
	f := &p.Files
	list := slices.Concat(f.Read, f.Write, []rootfs.Grant{f.Workdir}, p.Processes.Execute)
	binds := slices.Clone(f.Binds)
	for _, name := range slices.Sorted(maps.Keys(p.Views)) {
		list, binds = append(list, p.Views[name].Read...), append(binds, p.Views[name].Binds...)
	}
	for _, b := range binds {
		list = append(list, rootfs.Grant{Path: b.Source, From: b.From}, rootfs.Grant{Path: b.Target, From: b.From})
	}
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
