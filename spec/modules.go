package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/interp"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/compile"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

const keyHideModules = "files.hide_modules"

// hideModules returns the policy with the paths of its hidden modules.
func hideModules(p *policy.Policy, h *Host, plan *Plan) *policy.Policy {
	names := itemsOf(p, keyHideModules, p.Interpreters.HideModules)
	if len(names) == 0 {
		return p
	}
	found := interp.FindModules(h.Tree, p.Files, names)
	with := *p
	with.Files.Gone = found.Gone
	for _, it := range found.Builtin {
		plan.weaken(Weakness{it.From, interp.WhyBuiltin(it.Name)})
	}
	for _, dir := range found.Partial {
		plan.weaken(Weakness{keyHideModules, partial(dir)})
	}
	return &with
}

func partial(dir string) string {
	return fmt.Sprintf("%q has too many files or too many modules of these names: not every one in it, or in what is searched after it, is hidden", dir)
}

// overlays decides in which directories modules are absent. Each is tried on this machine.
func overlays(v *rootfs.View, h *Host) []rootfs.Overlay {
	if len(v.Overlays) == 0 {
		return nil
	}
	list := slices.Clone(v.Overlays)
	sources := make([]string, len(list))
	for i := range list {
		sources[i] = list[i].Source
	}
	refused := h.overlays(sources)
	for i := range list {
		list[i].Why = refused[i]
	}
	return list
}

// overlays says why an overlay over each directory cannot be had; empty: it can.
func (h *Host) overlays(dirs []string) []string {
	if h.Overlays == nil {
		return slices.Repeat([]string{"it is not known whether this machine can hide a name in a directory"}, len(dirs))
	}
	return h.Overlays(dirs)
}

// emptied says what is empty and should be absent, and why.
func emptied(v *rootfs.View) []Weakness {
	const most = 3
	var reasons []string
	said, from := map[string][]string{}, map[string]string{}
	for _, e := range v.Emptied {
		if said[e.Why] == nil {
			reasons, from[e.Why] = append(reasons, e.Why), e.From
		}
		said[e.Why] = append(said[e.Why], fmt.Sprintf("%q (%s)", e.Dir, few(e.Names, most, "")))
	}
	list := make([]Weakness, 0, len(reasons))
	for _, why := range reasons {
		list = append(list, Weakness{from[why], fmt.Sprintf("a program finds empty what should be absent in %s: %s", few(said[why], most, " directories"), why)})
	}
	return list
}

// few lists the first, and says how many more there are.
func few(list []string, most int, of string) string {
	if more := len(list) - most; more > 0 {
		return fmt.Sprintf("%s and %d more%s", strings.Join(list[:most], ", "), more, of)
	}
	return strings.Join(list, ", ")
}

// hideIn adds hidden modules of what a view shows besides.
func (k *Kept) hideIn(p *rootfs.Policy, v policy.View, tree hostfs.Tree) (warnings []string) {
	if len(k.HideModules) == 0 {
		return nil
	}
	only := rootfs.Policy{Base: rootfs.Base{Kind: rootfs.BaseNone}, Read: v.Read, Binds: v.Binds}
	found := interp.FindModules(tree, only, k.HideModules)
	for _, g := range found.Gone {
		if !slices.ContainsFunc(p.Gone, func(o rootfs.Grant) bool { return o.Path == g.Path }) {
			p.Gone = append(slices.Clip(p.Gone), g)
		}
	}
	for _, dir := range found.Partial {
		warnings = append(warnings, keyHideModules+": "+partial(dir))
	}
	return warnings
}

// compileGone compiles a view and, where a directory should have names left out, again with what the machine says of that.
func compileGone(req *compile.Request, connector *rootfs.Bind, h *Host) (*rootfs.View, error) {
	v, err := compileView(*req, connector, h.Ground)
	if err != nil {
		return nil, err
	}
	if req.Overlays = overlays(v, h); len(req.Overlays) == 0 {
		return v, nil
	}
	return compileView(*req, connector, h.Ground)
}
