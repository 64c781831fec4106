package container

import (
	"encoding/json"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/idmap"
	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/container/machine"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/container/views"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// This file has what one exec sees besides what every exec of its sandbox sees, or does not see.

// extra decides what an exec sees besides; nil if nothing.
func (sb *Sandbox) extra(req Request) (*spec.Extra, error) {
	if req.View.empty() {
		return nil, nil
	}
	kept := sb.kept
	if kept == nil {
		kept = &spec.Kept{}
		if err := json.Unmarshal(sb.keptData, kept); err != nil {
			return nil, fail(fault.SandboxLost, "", "read the policy of sandbox %q: %w", sb.state.ID, err)
		}
	}
	asked, err := kept.Named(req.View.Name, req.View.View)
	if err != nil {
		return nil, err
	}
	h, err := machine.Probe(policy.Limits{})
	if err != nil {
		return nil, err
	}
	known := trust.Known{State: sb.store.path, RuntimeDir: req.Caller["XDG_RUNTIME_DIR"], Policy: sb.policyPaths, Output: req.OutputDir}
	if sb.state.Record != nil {
		known.Record = sb.state.Record.Dir
	}
	if err := trust.Add(h, known); err != nil {
		return nil, err
	}
	if e := &sb.state.Launch; e.OwnID {
		h.Idmap = idmap.Tester(e.UID, h.UID, h.GID)
	}
	x, err := kept.Extra(asked, h, sb.state.Launch.OwnID)
	if err != nil {
		return nil, err
	}
	var fresh []string
	for _, f := range req.Fresh {
		if name, err := freshPath(f, sb.dirOf(req.Dir), variable(req.env, "HOME")); err == nil { // freshMounts says what is wrong
			fresh = append(fresh, name)
		}
	}
	return x, x.CheckFresh(fresh)
}

// decide decides the whole exec.
func (sb *Sandbox) decide(req Request, in lookup.Root) (cmd forkexec.Command, x *spec.Extra, err error) {
	if x, err = sb.extra(req); err == nil {
		cmd, err = sb.command(req, in, x)
	}
	return cmd, x, err
}

// show adds it to the command.
func (r *Running) show(x *spec.Extra, cmd *forkexec.Command, in lookup.Root) error {
	if x == nil {
		return nil
	}
	uid, gid := r.sb.hostIDs()
	shown, err := views.Sandbox{Init: r.sb.init, In: in, UID: cmd.UID, GID: cmd.GID, HostUID: uid, HostGID: gid}.Show(x)
	if err != nil {
		return err
	}
	cmd.Extra.Add(shown.Extra)
	r.warnings = append(r.warnings, shown.Warnings...)
	if r.limits.WatchMemory {
		cmd.Limits.Tmpfs = append(slices.Clip(cmd.Limits.Tmpfs), shown.Tmpfs...)
	}
	return nil
}

// viewsProgram finds a program in what the exec alone sees. The kernel decides whether it can be executed.
func viewsProgram(x *spec.Extra, name, dir, pathVar string) (string, bool) {
	if x == nil {
		return "", false
	}
	if strings.Contains(name, "/") {
		if !path.IsAbs(name) {
			name = path.Join(dir, name)
		}
		return name, x.Host(name) != ""
	}
	for d := range strings.SplitSeq(pathVar, ":") {
		if !path.IsAbs(d) {
			continue
		}
		host := x.Host(path.Join(d, name))
		if host == "" {
			continue
		}
		if info, err := os.Stat(host); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return path.Join(d, name), true
		}
	}
	return "", false
}

// notShown says why an exec does not see what it was to see.
func (sb *Sandbox) notShown(step *forkexec.StepError) error {
	switch {
	case step.Step == forkexec.StepShow:
		return fail(fault.ViewTarget, "did it change just now?", "show %s to this exec alone: %w", step.Detail, step.Err)
	case step.Err == unix.EEXIST:
		return fail(fault.IsolationCheckFailed, "", "%s is denied, and the program could open it", step.Detail)
	case step.Err == unix.EROFS:
		return fail(fault.IsolationCheckFailed, "", "%s is to be read-only, and its mount is writable", step.Detail)
	case step.Err == unix.ESTALE:
		return fail(fault.IsolationCheckFailed, "did it change just now?", "%s is not the file that was to be shown", step.Detail)
	}
	return fail(fault.ViewUnreadable, "the program needs to be able to search the directories above it", "%s: the program does not see it: %w", step.Detail, step.Err)
}
