package spec

import (
	"github.com/sandboxrun/sandboxrun/rootfs/explain"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Explainer explains the paths of a plan. groups are the caller's supplementary groups.
func Explainer(p *policy.Policy, plan *Plan, h *Host, groups []int) *explain.Explainer {
	launcher := explain.Who{UID: h.UID, GID: h.GID}
	program := launcher
	if plan.Exec.UID != 0 { // 0 is the caller, in the sandbox's user namespace
		program = explain.Who{UID: plan.Exec.UID, GID: plan.Exec.GID}
	}
	if !plan.Exec.DropGroups {
		program.Groups = groups
	}
	tool := ""
	if hasConnector(plan.View) {
		tool = ConnectPath
	}
	return &explain.Explainer{
		Tool: tool, View: plan.View, Policy: plan.Files, Tree: h.Tree, Who: program, Launcher: launcher, OwnID: plan.Exec.OwnID,
		Executed: plan.Exec.Execute, HiddenProc: plan.Exec.Hide, ReadonlyProc: plan.Exec.Readonly, NoProc: plan.Exec.NoProc,
	}
}
