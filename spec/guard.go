package spec

import (
	"path"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/interp"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// guard plans the guard in the interpreter. An interpreter's own directories are its standard library and its site directories.
func guard(p *policy.Policy, h *Host, plan *Plan, found *interp.Found) *Guard {
	if p.Processes.Guard == "" {
		return nil
	}
	dirs := slices.Clone(found.Native)
	for _, lib := range []string{"/usr/lib", "/usr/lib64", "/usr/local/lib"} {
		names, _ := h.Tree.ReadDir(hostfs.RealPath(h.Tree, lib))
		for _, name := range names {
			if strings.HasPrefix(name, "python3") {
				dirs = append(dirs, path.Join(lib, name))
			}
		}
	}
	x, changeable := Explainer(p, plan, h, nil), plan.View.Changeable(h.Tree)
	g := &Guard{Steps: p.Processes.Steps, Native: []string{}}
	for _, dir := range dirs {
		if e := x.Explain(dir); e.Inside() && changeable(e.Place()) == "" && !slices.Contains(g.Native, dir) {
			g.Native = append(g.Native, dir)
		}
	}
	slices.Sort(g.Native)
	return g
}
