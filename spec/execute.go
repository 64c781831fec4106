package spec

import (
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/explain"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// MinLandlock is the version of Landlock (Linux 5.19) that can allow renames across directories while it restricts execution.
const MinLandlock = 2

// execute decides which files the program may execute: those of processes.execute, and what the kernel executes for them, which are
// the interpreters that they name and ELF loaders. The rule holds only if the program can change none of these files.
func execute(p *policy.Policy, h *Host, plan *Plan) error {
	list := p.Processes.Execute
	if len(list) == 0 {
		return nil
	}
	if h.Landlock < MinLandlock {
		return fault.New(fault.LimitUnenforceable, "sandboxrun doctor says what is missing; or remove the key",
			"%s: processes.execute cannot be enforced: it needs Landlock %d, and this machine has %d", list[0].From, MinLandlock, h.Landlock)
	}
	if err := plan.View.ForbidExecution(h.Tree); err != nil {
		return executeError(list[0], err.Error(), "show what the program can write under one path only")
	}
	x := Explainer(p, plan, h, nil)
	changeable := plan.View.Changeable(h.Tree)
	var allowed []string
	var inodes [][2]uint64
	for _, g := range list {
		files, err := x.Executes(explain.Asked{Name: g.Path, Dir: plan.Exec.Dir, Env: plan.Exec.Passed(nil, nil), Arch: h.Arch})
		if err != nil {
			return executeError(g, err.Error(), "sandboxrun explain "+g.Path)
		}
		for _, f := range files {
			if why := changeable(f.Place()); why != "" {
				return executeError(g, fmt.Sprintf("the program could change %q: %s", f.Real, why), "name a copy of it that no grant lets the program write")
			}
			allowed = append(allowed, f.Real)
			info, err := h.Tree.Lstat(f.Host)
			if err != nil {
				return executeError(g, fmt.Sprintf("%q: %v", f.Host, err), "")
			}
			inodes = append(inodes, [2]uint64{info.Dev, info.Ino})
		}
	}
	slices.Sort(allowed)
	plan.Exec.Execute = slices.Compact(allowed)
	plan.unlisted = unlisted(x, h.Tree, inodes)
	return nil
}

// native keeps the program from loading code of its own from files.
func native(p *policy.Policy, h *Host, plan *Plan) error {
	if p.Processes.Native {
		return nil
	}
	if err := plan.View.ForbidExecution(h.Tree); err != nil {
		return fault.New(fault.PolicyInvalid, "show what the program can write under one path only", "processes.native = false: %w", err)
	}
	return nil
}

func executeError(g rootfs.Grant, message, hint string) error {
	return fault.New(fault.PolicyInvalid, hint, "%s", g.From+": processes.execute: "+message)
}

// unlisted is a program that most systems have and that the program may not execute, for the check of it; empty if there is none.
func unlisted(x *explain.Explainer, tree hostfs.Tree, listed [][2]uint64) string {
	for _, name := range []string{"true", "sh", "env", "ls", "cat"} {
		e := x.Explain(path.Join("/usr/bin", name))
		if !e.Inside() || !e.Executable || e.Host == "" {
			continue
		}
		if info, err := tree.Lstat(e.Host); err == nil && info.Mode&fs.ModeType == 0 && !slices.Contains(listed, [2]uint64{info.Dev, info.Ino}) {
			return e.Real
		}
	}
	return ""
}
