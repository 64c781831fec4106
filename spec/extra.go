package spec

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/interp"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/compile"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Kept is what a sandbox keeps of its policy, to decide later what one exec sees besides what every exec sees. The same compiler
// decides it as for the sandbox, so denies, secrets and trusted files mean the same.
type Kept struct {
	Request   compile.Request        `json:"request"`
	Connector *rootfs.Bind           `json:"connector,omitempty"`
	Views     map[string]policy.View `json:"views,omitempty"`
	// HideModules are files.hide_modules: an exec must not see them in what it alone sees either.
	HideModules []interp.Item `json:"hide_modules,omitempty"`
	// NoProc: no program of the sandbox sees a procfs.
	NoProc bool `json:"no_proc,omitempty"`
}

// Extra is what one exec sees besides, or does not see.
type Extra struct {
	// Asked is what it was made of: a view of the policy, and what the exec asks for besides.
	Asked policy.View
	// Mounts are mounted over the sandbox's own, in order. Masks come last.
	Mounts []rootfs.Mount
	// Again are targets of the sandbox's mounts below one of these, which would be hidden by it.
	Again []string
	// Links are links that lead to what is shown.
	Links []rootfs.Entry
	// After is all that the exec sees.
	After *rootfs.View
	// Masked is what the exec must not be able to open, or must find nothing in.
	Masked []rootfs.Mount
	// Warnings are said with the exec's result.
	Warnings []string
}

// Named is a view of the policy, together with another one.
func (k *Kept) Named(name string, also policy.View) (policy.View, error) {
	if name == "" {
		return also, nil
	}
	v, ok := k.Views[name]
	if !ok {
		return v, fault.New(fault.ViewUnknown, "add a table [views."+name+"] to the policy", "the policy has no view %q", name)
	}
	return policy.View{Read: slices.Concat(v.Read, also.Read), Binds: slices.Concat(v.Binds, also.Binds), Deny: slices.Concat(v.Deny, also.Deny)}, nil
}

// Extra decides what an exec with a view sees. Both views are compiled from the host as it is now, so they differ by what was asked
// for alone. own says that the program has an id of its own (Exec.OwnID). The error is as of Resolve.
func (k *Kept) Extra(v policy.View, h *Host, own bool) (*Extra, error) {
	if k.NoProc {
		if err := leadsToProc(h.Tree, wanted(v.Read, v.Binds)); err != nil {
			return nil, err
		}
	}
	req := k.Request
	req.Tree = h.Tree
	before, err := compileView(req, k.Connector, h.Ground)
	if err != nil {
		return nil, err
	}
	req.Policy = v.With(req.Policy)
	partial := k.hideIn(&req.Policy, v, h.Tree)
	after, err := compileView(req, k.Connector, h.Ground)
	if err == nil && k.NoProc {
		err = showsProcfs(after, h.Tree.Mounts())
	}
	if err != nil {
		return nil, err
	}
	x := &Extra{Asked: v, After: after, Warnings: slices.DeleteFunc(slices.Clone(after.Skipped), func(s string) bool { return slices.Contains(before.Skipped, s) })}
	if err := x.compare(before, after); err != nil {
		return nil, err
	}
	x.Warnings = append(x.Warnings, partial...)
	for _, w := range emptied(after) {
		if !slices.Contains(emptied(before), w) {
			x.Warnings = append(x.Warnings, w.What+": "+w.Reason)
		}
	}
	x.links(before, after)
	x.absent(before, after)
	return x, x.idmapped(h, own, k.Request.Policy.Base.From)
}

// compare finds the mounts that are new.
func (x *Extra) compare(before, after *rootfs.View) error {
	was := map[string]rootfs.Mount{}
	for _, m := range before.Mounts {
		if !m.Pin {
			was[m.Target] = m
		}
	}
	over := func(target string) bool {
		return slices.ContainsFunc(x.Mounts, func(n rootfs.Mount) bool {
			return n.Kind != rootfs.MountMask && n.Target != target && pathname.Within(target, n.Target)
		})
	}
	for _, m := range after.Mounts { // parents come first
		switch {
		case m.Pin:
		case m.Kind == rootfs.MountMask && before.HasGone(m.Target): // the sandbox has nothing there to be masked
		case !sameMount(was[m.Target], m) && len(m.Without) > 0:
			return fault.New(fault.ViewTarget, "grant it in the policy instead", "%s: modules that the policy hides in %q cannot be hidden for one exec alone", m.From, m.Target)
		case !sameMount(was[m.Target], m) || m.Kind == rootfs.MountMask && over(m.Target):
			x.Mounts = append(x.Mounts, m)
		case over(m.Target):
			x.Again = append(x.Again, m.Target)
		}
		if m.Kind == rootfs.MountMask && !m.Link {
			x.Masked = append(x.Masked, m)
		}
	}
	return nil
}

// links finds the links that are new.
func (x *Extra) links(before, after *rootfs.View) {
	for _, e := range after.Entries {
		if e.Kind == rootfs.EntrySymlink && !slices.Contains(before.Entries, e) {
			x.Links = append(x.Links, e)
		}
	}
}

func sameMount(a, b rootfs.Mount) bool {
	return a.Kind == b.Kind && a.Source == b.Source && a.Writable == b.Writable && a.Content == b.Content && a.Empty == b.Empty
}

// absent says what cannot be hidden, because it is not there.
func (x *Extra) absent(before, after *rootfs.View) {
	for _, d := range after.Absent {
		if !slices.ContainsFunc(before.Absent, func(b rootfs.Denied) bool { return b.Inside == d.Inside }) {
			x.Warnings = append(x.Warnings, fmt.Sprintf("%s: nothing is at %q that could be hidden; what is made there during the exec can be seen", d.From, d.Host))
		}
	}
}

// idmapped decides which mounts show the caller's files as the program's own, as for a grant of the policy.
func (x *Extra) idmapped(h *Host, own bool, base string) error {
	for i := range x.Mounts {
		m := &x.Mounts[i]
		if !own || m.Kind != rootfs.MountBind || m.Source == "" || m.From == rootfs.FromDefault || m.From == base {
			continue
		}
		left, err := h.Idmap(m.Source)
		switch {
		case err != nil:
			x.Warnings = append(x.Warnings, fmt.Sprintf("%s %q: it cannot be idmapped: %v. The program can read only the files there that everybody may read",
				m.From, m.Source, err))
		case len(left) > 0:
			return fault.New(fault.GrantNotIdmapped, "name a part of it that does not have this mount", "%s %q: what is mounted at %q cannot be shown: %s", m.From, m.Source, left[0].Path, left[0].Why)
		default:
			m.Idmapped = true
		}
	}
	return nil
}

// checkViews finds faults of the policy's views when the sandbox is made.
func (k *Kept) checkViews(h *Host, own bool) error {
	for _, name := range slices.Sorted(maps.Keys(k.Views)) {
		if _, err := k.Extra(k.Views[name], h, own); err != nil {
			return err
		}
	}
	return nil
}

// CheckFresh refuses directories that are empty for the exec and would hide what it is to see, or be hidden by it.
func (x *Extra) CheckFresh(fresh []string) error {
	for _, m := range x.Mounts {
		for _, f := range fresh {
			if m.Kind != rootfs.MountMask && (pathname.Within(m.Target, f) || pathname.Within(f, m.Target)) {
				return fault.New(fault.FreshUnusable, "leave one of them out", "fresh %q and %s: %q cannot be both", f, m.From, m.Target)
			}
		}
	}
	return nil
}

// Host is the path on the host of what the exec alone sees at a path inside; empty if it sees nothing of its own there.
func (x *Extra) Host(inside string) string {
	if x == nil {
		return ""
	}
	inside = path.Clean(inside)
	for _, m := range slices.Backward(x.Mounts) {
		if m.Kind == rootfs.MountBind && m.Source != "" && pathname.Within(inside, m.Target) {
			return pathname.Rebase(inside, m.Target, m.Source)
		}
	}
	return ""
}
