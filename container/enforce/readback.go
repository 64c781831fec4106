package enforce

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/cgroup"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// enforcement is a way to hold a limit. A limit for which the table has no row is an error: nothing would hold it.
type enforcement struct {
	name string
	by   []string
	// holds reads back, in the limit's unit, what a program that is started by this command is held to.
	holds func(*Exec) (float64, error)
}

// Exec is what holds the limits of one exec.
type Exec struct {
	Command *forkexec.Command
	Limits  Limits
	Guard   *spec.Guard // the sandbox's, if it has one
	Made    bool        // the sandbox is just made: its control groups are read too, not only what the exec's own will be
}

func enforcements() []enforcement {
	groups := []string{spec.ByCgroup2, spec.BySystemd, spec.ByCgroup1}
	limits := func(read func(*forkexec.Limits) float64) func(*Exec) (float64, error) {
		return func(e *Exec) (float64, error) { return read(&e.Command.Limits), nil }
	}
	return []enforcement{
		{"wall", []string{spec.ByTimer}, limits(func(l *forkexec.Limits) float64 { return l.Wall.Seconds() })},
		{"idle", []string{spec.ByTimer}, limits(func(l *forkexec.Limits) float64 { return l.Idle.Seconds() })},
		{"cpu", []string{spec.ByWatcher}, limits(func(l *forkexec.Limits) float64 { return l.CPU.Seconds() })},
		{"cpus", groups, (*Exec).quota},
		{"cpus", []string{spec.ByAffinity}, (*Exec).processors},
		{"memory", groups, (*Exec).groupMemory},
		{"memory", []string{spec.ByWatcher}, limits(func(l *forkexec.Limits) float64 { return onlyIf(l.WatchMemory, l.Memory) })},
		{"pids", groups, (*Exec).groupPids},
		{"pids", []string{spec.ByRlimit}, rlimited(unix.RLIMIT_NPROC)},
		{"pids", []string{spec.ByWatcher}, limits(func(l *forkexec.Limits) float64 { return onlyIf(l.WatchPids, l.Pids) })},
		{"file", []string{spec.ByRlimit}, rlimited(unix.RLIMIT_FSIZE)},
		{"nofile", []string{spec.ByRlimit}, rlimited(unix.RLIMIT_NOFILE)},
		{"disk", []string{spec.ByWatcher}, (*Exec).disk},
		{"steps", []string{spec.ByGuard}, (*Exec).steps},
		{"output", []string{spec.ByLauncher}, func(e *Exec) (float64, error) { return float64(e.Limits.Output), nil }},
	}
}

// ReadBack says of each limit that it is held, having read what holds it. One that nothing holds, or that is held to more
// than was asked for, is an error.
func (e *Exec) ReadBack(list []spec.Limit) error {
	for i := range list {
		l := &list[i]
		l.Verified = false
		row := findEnforcement(l.Name, l.EnforcedBy)
		if row == nil {
			return fault.New(fault.LimitUnenforceable, "remove it from the policy", "limits.%s = %v: nothing holds such a limit by %q", l.Name, l.Value, l.EnforcedBy)
		}
		is, err := row.holds(e)
		const rounding = 1e-3
		switch {
		case err != nil:
			return fault.New(fault.LimitUnenforceable, `enforce = "best_effort" does without control groups`, "limits.%s = %v: read back: %w", l.Name, l.Value, err)
		case is <= 0 || is > l.Value+rounding:
			return fault.New(fault.LimitUnenforceable, "", "limits.%s = %v is not held: %s holds %v", l.Name, l.Value, l.EnforcedBy, is)
		}
		l.Verified = true
	}
	return nil
}

// Report gives the limits of one exec, and how each is held, read back from its command. of are the sandbox's.
func (e *Exec) Report(of []spec.Limit) ([]spec.Limit, error) {
	list, l := slices.Clone(of), &e.Limits
	set := func(name string, value float64, by string) {
		at := slices.IndexFunc(list, func(s spec.Limit) bool { return s.Name == name })
		switch {
		case value == 0:
		case at >= 0:
			list[at].Value = value
		default:
			list = append(list, spec.Limit{Name: name, Value: value, EnforcedBy: by})
		}
	}
	set("wall", l.Wall.Seconds(), spec.ByTimer)
	set("cpu", l.CPU.Seconds(), spec.ByWatcher)
	set("memory", float64(l.Memory), spec.ByWatcher)
	pids := spec.ByWatcher
	if l.Nproc {
		pids = spec.ByRlimit
	}
	set("pids", float64(l.Pids), pids)
	return list, e.ReadBack(list)
}

func findEnforcement(name, by string) *enforcement {
	for _, e := range enforcements() {
		if e.name == name && slices.Contains(e.by, by) {
			return &e
		}
	}
	return nil
}

func onlyIf(is bool, n int64) float64 {
	if !is {
		return 0
	}
	return float64(n)
}

// rlimited reads what the command has; forkexec.c reads it back from the kernel in each exec, which fails where it differs.
func rlimited(resource int) func(*Exec) (float64, error) {
	return func(e *Exec) (float64, error) {
		for _, r := range e.Command.Rlimits {
			if r.Resource == resource {
				return float64(r.Max), nil
			}
		}
		return 0, nil
	}
}

// processors are read back in each exec too.
func (e *Exec) processors() (float64, error) {
	if e.Command.CPUs == nil {
		return 0, nil
	}
	return float64(e.Command.CPUs.Count()), nil
}

// disk is watched by each exec, from what the sandbox's state says.
func (e *Exec) disk() (float64, error) {
	if !e.Made && e.Command.Limits.Check == nil {
		return 0, nil
	}
	return float64(e.Limits.Disk), nil
}

// steps are what the guard is given. What it has begun to count is read back when the exec has ended.
func (e *Exec) steps() (float64, error) {
	if g := e.Guard; g != nil {
		return float64(g.Steps), nil
	}
	return 0, nil
}

// groupOf finds the group with a controller.
func (e *Exec) groupOf(controller int) (forkexec.Group, error) {
	for _, g := range e.Command.Limits.Groups {
		if g.Controllers&controller != 0 {
			return g, nil
		}
	}
	return forkexec.Group{}, errors.New("there is no control group")
}

// inGroup reads a file of the sandbox's own group, and holds it to no more than a limit; each exec's group gets what the
// command says, which groups.c reads back.
func (e *Exec) inGroup(controller int, file func(cgroup.Files) string, want int64) (float64, error) {
	g, err := e.groupOf(controller)
	if err != nil || !e.Made {
		return float64(want), err
	}
	name := file(cgroup.FilesOf(g.Unified))
	is, ok := cgroup.Number(filepath.Join(g.Dir, name), "")
	if !ok {
		return 0, fmt.Errorf("%s cannot be read, or says that there is no limit", name)
	}
	return float64(is), nil
}

func (e *Exec) groupMemory() (float64, error) {
	return e.inGroup(forkexec.GroupMemory, func(f cgroup.Files) string { return f.Memory }, e.Command.Limits.Memory)
}

// groupPids is what the exec's own group holds: the sandbox's allows for the processes of ours that each exec needs.
func (e *Exec) groupPids() (float64, error) {
	is, err := e.inGroup(forkexec.GroupPids, func(f cgroup.Files) string { return f.Pids }, e.Command.Limits.Pids)
	if err == nil && is > float64(e.Command.Limits.SandboxPids) && e.Made {
		return is, nil
	}
	return float64(e.Command.Limits.Pids), err
}

func (e *Exec) quota() (float64, error) {
	g, err := e.groupOf(forkexec.GroupCPU)
	if err != nil || !e.Made {
		return e.Limits.CPUs, err
	}
	return cgroup.Quota(g.Dir, g.Unified)
}
