package container

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/check"
	"github.com/sandboxrun/sandboxrun/container/enforce"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/sabotage"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// checked is what the checks take of the sandbox.
func (sb *Sandbox) checked(filter []unix.SockFilter) *check.Sandbox {
	cmd := sb.baseCommand(filter)
	sb.limit(&cmd, sb.effective(Request{}), nil)
	return &check.Sandbox{
		PID: sb.state.PID, Proc: sb.proc, Command: cmd,
		Null: func() (*os.File, error) { return sb.null(unix.O_RDWR) },
		Shows: func() (*procfs.Shown, error) {
			s, err := sb.grantedPaths()
			if err != nil {
				return nil, err
			}
			return &s.Shown, nil
		},
		Environ: func(set map[string]string) []string { return sb.state.Launch.Environ(set, nil) },
		Start: func(cmd *forkexec.Command, calls *forkexec.Calls) (time.Duration, error) {
			if err := enforce.Reach(cmd.Limits.Groups); err != nil {
				return 0, sb.explain(err, Request{Args: []string{"check"}})
			}
			cpu, err := forkexec.Check(cmd, calls)
			if err != nil {
				err = sb.explain(err, Request{Args: []string{"check"}})
			}
			return cpu, err
		},
	}
}

// sabotage leaves a layer out, in builds for tests alone.
func (sb *Sandbox) sabotage(plan *spec.Plan) *spec.Plan {
	l := &sb.state.Launch
	sabotage.Launch(&l.EnvAllow, &l.UID, &l.GID)
	return sabotage.Plan(plan)
}
