package container

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/deny"
	"github.com/sandboxrun/sandboxrun/container/sabotage"
	"github.com/sandboxrun/sandboxrun/container/warm"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// Warm keeps interpreters ready for execs with Request.Warm: so many of each name, such as "python3" (warm.Check). They are started with what the
// policy takes of the caller's variables, as far as that decides how an interpreter starts. It does not wait for them.
func (sb *Sandbox) Warm(ready map[string]int, caller map[string]string) {
	for name, n := range ready {
		sb.keeper(Request{Caller: caller}).Keep(name, n)
	}
}

func (sb *Sandbox) keeper(req Request) *warm.Keeper {
	if k := sb.warm.Load(); k != nil {
		return k
	}
	req = Request{Caller: req.Caller, passed: req.passed}
	sb.warm.CompareAndSwap(nil, &warm.Keeper{
		Command: func(args []string) (*forkexec.Command, error) {
			of := req
			of.Args = args
			of.env, _ = sb.environ(of)
			return sb.waiting(of)
		},
		Start: sb.launchIn, Root: sb.inside,
		Mounts: func() ([]hostfs.Mount, error) {
			s, err := sb.grantedPaths()
			if err != nil {
				return nil, err
			}
			return s.There, nil
		},
	})
	return sb.warm.Load()
}

// waiting is the command of an exec that waits.
func (sb *Sandbox) waiting(req Request) (*forkexec.Command, error) {
	in, err := sb.inside()
	if err != nil {
		return nil, err
	}
	defer unix.Close(in.FD)
	cmd, _, err := sb.decide(req, in)
	if err != nil {
		return nil, err
	}
	l := sb.effective(req)
	sb.limit(&cmd, l, nil)
	if l.Disk > 0 { // who gives it a program says what is asked
		cmd.Limits.Check = func(int64) (bool, time.Duration) { return false, time.Hour }
	}
	denied, err := deny.Open(sb.state.Launch.Watch, in)
	if err != nil {
		return nil, err
	}
	defer denied.Close()
	if len(denied.Cover()) > 0 { // a cover goes with the file that is under it, and is made anew for each exec
		return nil, fail(fault.Failed, "", "something denied has appeared, or has lost its mask")
	}
	sabotage.Command(&cmd)
	cmd.Asks = true
	return &cmd, nil
}

// start starts the program, or gives it to an interpreter that waits.
func (r *Running) start(req Request, cmd *forkexec.Command) (*forkexec.Process, error) {
	if !req.Warm {
		return r.sb.launchIn(cmd)
	}
	p, why := r.sb.keeper(req).Take(cmd)
	is := p != nil
	if r.warm, r.warmWhy = &is, why; is {
		return p, nil
	}
	return r.sb.launchIn(cmd)
}
