package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/interp"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// interpreters returns the policy with the grants that its interpreters and packages stand for.
func interpreters(p *policy.Policy, h *Host) (*policy.Policy, *interp.Found, error) {
	found, err := interp.Find(interp.Request{
		Interpreters: itemsOf(p, "files.interpreters", p.Interpreters.Show), Packages: itemsOf(p, "files.packages", p.Interpreters.Packages),
		Files: p.Files, Env: h.Env, Tree: h.Tree,
	})
	if err != nil {
		return nil, nil, err
	}
	with := *p
	with.Files.Read = append(slices.Clone(p.Files.Read), found.Read...)
	with.Files.Empty = found.Empty
	return &with, found, nil
}

// itemsOf are the names of a list in the policy, with their places.
func itemsOf(p *policy.Policy, key string, names []string) []interp.Item {
	var list []interp.Item
	for _, name := range names {
		from := key
		if at := p.Place(key, name); at != "" {
			from = at + ": " + key
		}
		list = append(list, interp.Item{Name: name, From: from})
	}
	return list
}

// leadPath gives programs the directories of the interpreters, before all others, and those of packages.
func leadPath(plan *Plan, found *interp.Found) {
	env := plan.Exec.Env
	env["PATH"] = strings.Join(append(slices.Clone(found.Path), env["PATH"]), ":")
	if len(found.PythonPath) > 0 {
		env["PYTHONPATH"] = strings.Join(found.PythonPath, ":")
	}
	for _, grant := range found.Partial {
		plan.weaken(Weakness{
			"files.interpreters", fmt.Sprintf("%q has too many files or too many other interpreters: not every site directory of theirs in it is empty", grant),
		})
	}
}
