package container

import (
	"github.com/sandboxrun/sandboxrun/container/guard"
	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// guarded has a command start its program with the guard of processes.guard.
func (sb *Sandbox) guarded(cmd forkexec.Command, in lookup.Root, own bool) (forkexec.Command, error) {
	if own {
		return cmd, fail(fault.GuardUnsupported, "put the script, and start Python with it", "processes.guard: %q is there for this exec alone, and cannot be guarded", cmd.Path)
	}
	g, err := guard.Command(in, cmd.Path, cmd.Args, cmd.Env)
	cmd.Path, cmd.Args, cmd.Env = g.Path, g.Args, g.Env
	return cmd, err
}

// shareBoard gives a command the memory of its guard, if it has one.
func (r *Running) shareBoard(cmd *forkexec.Command) (err error) {
	if g := r.sb.state.Launch.Guard; g != nil {
		r.board, err = guard.New(g)
		cmd.Guard = r.board.File()
	}
	return err
}

// hearGuard adds to a result what the guard says.
func (r *Running) hearGuard(res *result.Result) error {
	if r.board == nil {
		return nil
	}
	defer r.board.Close()
	w, err := r.board.Read()
	if err != nil {
		return err
	}
	res.Guarded(w.Steps, w.Exceeded && res.Outcome == result.Exited && res.ExitCode == guard.Exceeded)
	for i := range res.Limits {
		if l := &res.Limits[i]; l.Name == "steps" {
			l.Verified = w.Counts == r.sb.state.Launch.Guard.Steps
		}
	}
	if err := w.Failed(r.args[0]); err != nil && res.Outcome == result.Exited {
		res.NotStarted(err)
	}
	return nil
}
