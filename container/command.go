package container

import (
	"errors"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/puts"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// This file decides the command of an exec, and says whose fault it was that one could not be started.

// command decides the command of an exec.
func (sb *Sandbox) command(req Request, in lookup.Root, x *spec.Extra) (forkexec.Command, error) {
	e := &sb.state.Launch
	if len(req.Args) == 0 {
		return forkexec.Command{}, fail(fault.ProgramNotFound, "", "there is no command")
	}
	dir := e.Dir
	if req.Dir != "" {
		dir = path.Join(e.Dir, req.Dir)
		if path.IsAbs(req.Dir) {
			dir = path.Clean(req.Dir)
		}
	}
	program, known := putsProgram(req, req.Args[0], dir)
	if !known {
		program, known = viewsProgram(x, req.Args[0], dir, variable(req.env, "PATH"))
	}
	if !known {
		var err error
		if program, err = in.Find(req.Args[0], dir, variable(req.env, "PATH")); err != nil {
			return forkexec.Command{}, err
		}
	}
	filter, err := sb.loadFilter()
	if err != nil {
		return forkexec.Command{}, err
	}
	cmd := sb.baseCommand(filter)
	cmd.Path, cmd.Args, cmd.Env, cmd.Dir = program, req.Args, req.env, dir
	if sb.state.Launch.Guard != nil {
		return sb.guarded(cmd, in, known)
	}
	return cmd, nil
}

func (sb *Sandbox) loadFilter() ([]unix.SockFilter, error) { return sb.decodeFilter(sb.filter) }

func (sb *Sandbox) decodeFilter(data []byte) ([]unix.SockFilter, error) {
	f, err := forkexec.DecodeFilter(data)
	if err != nil {
		return nil, fail(fault.SandboxLost, "", "read the seccomp filter of sandbox %q: %w", sb.state.ID, err)
	}
	return f, nil
}

// lostRace reports whether a mount of an exec has failed since its target went away. Those in a grant are covers of denied
// paths (package deny), and a program that makes and removes such a path all the time must not keep others from starting.
func lostRace(err error) bool {
	var step *forkexec.StepError
	if !errors.As(err, &step) {
		return false
	}
	gone := step.Err == unix.ENOENT || step.Err == unix.ENOTDIR || step.Err == unix.ELOOP
	// What an exec alone sees may lie beside what a program renames all the time.
	return step.Step == forkexec.StepMount && gone || step.Step == forkexec.StepShow && (gone || step.Err == unix.EEXIST || step.Err == unix.EINVAL)
}

const raceTries = 20

// explains reports whether a program gets a line on standard error for each host that the relay refuses.
func (sb *Sandbox) explains() bool { return sb.state.Relay != nil && sb.state.Relay.Policy.Explain }

// putsProgram reports whether the program is a file that is put there.
func putsProgram(req Request, name, dir string) (string, bool) {
	if !slices.Contains([]byte(name), '/') {
		return "", false
	}
	if !path.IsAbs(name) {
		name = path.Join(dir, name)
	}
	return name, slices.ContainsFunc(req.Put, func(p Put) bool { return path.Join(dir, p.Path) == path.Clean(name) })
}

// baseCommand is what all programs of the sandbox have in common: the namespaces and the mounts that they run in.
func (sb *Sandbox) baseCommand(filter []unix.SockFilter) forkexec.Command {
	e := &sb.state.Launch
	return forkexec.Command{
		Target: sb.init, Namespaces: e.Namespaces, DropGroups: e.DropGroups, Mounts: slices.Clip(e.Mounts),
		UID: e.UID, GID: e.GID, ShownUID: e.ShownUID, ShownGID: e.ShownGID, Dir: e.Dir, Umask: e.Umask, Filter: filter,
		Once: e.NoSpawn, Execute: e.Execute, Extra: forkexec.Extra{Steps: e.Steps, First: len(e.Steps)},
	}
}

// explain says whose fault a failed start was: the policy's, the program's or the machine's.
func (sb *Sandbox) explain(err error, req Request) error {
	var step *forkexec.StepError
	switch {
	case !errors.As(err, &step) && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)):
		return fail(fault.StateUnusable, fault.DiskHint, "start program in sandbox %q: %w", sb.state.ID, err)
	case !errors.As(err, &step):
	case step.Step == forkexec.StepExecve:
		return sb.notExecuted(step.Err, req.Args[0])
	case step.Step == forkexec.StepUserns && errors.Is(step.Err, unix.EAGAIN) && sb.state.Launch.Limits.Pids > 0:
		return fail(fault.LimitReached, "end other programs in the sandbox: sandboxrun ps "+sb.state.ID,
			"start program in sandbox %q: its limit of processes is reached: %w", sb.state.ID, step.Err)
	case step.Step == forkexec.StepRlimit && step.Detail == forkexec.CoreLimit:
		return fail(fault.LimitUnenforceable, spec.CoreHint, "start program in sandbox %q: if it crashed, the host's core handler would run: %w",
			sb.state.ID, err)
	case step.Step == forkexec.StepTerminal:
		return fail(fault.NoTerminal, "", "open a terminal in sandbox %q: %w", sb.state.ID, step.Err)
	case step.Step == forkexec.StepPut:
		return puts.Failed(step)
	case step.Step == forkexec.StepShow || step.Step == forkexec.StepShown:
		return sb.notShown(step)
	case step.Step == forkexec.StepDir:
		return fail(fault.CwdMissing, "it must be a directory that the policy shows", "working directory %s: %w", step.Detail, step.Err)
	}
	if procfs.PidfdWait(sb.init, 50) { // it may be about to end: then parts of it are gone already
		return sb.lost()
	}
	if hint := diagnose.Scarce(err); hint != "" {
		what := "start program"
		if diagnose.RefusedProcess(err) {
			what = "start the processes of a program"
		}
		return fail(fault.LimitReached, hint, "%s in sandbox %q: %w", what, sb.state.ID, err)
	}
	if step != nil && step.Step == forkexec.StepUserns { // probed now, the sandbox that is there would count too
		return diagnose.NoNextBest(diagnose.Step(forkexec.ProbeNested, step.Err, diagnose.Surroundings()).Err, sb.state.BestEffort)
	}
	if d := diagnose.Machine(); d != nil {
		return diagnose.NoNextBest(d, sb.state.BestEffort)
	}
	return fail(fault.SandboxUnavailable, "", "start program in sandbox %q: %w", sb.state.ID, err)
}
