package container

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/cgroup"
	"github.com/sandboxrun/sandboxrun/container/disk"
	"github.com/sandboxrun/sandboxrun/container/enforce"
	"github.com/sandboxrun/sandboxrun/container/stats"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// enforceLimits prepares all that holds the sandbox's limits, before the first program, and says what has been read back.
func (sb *Sandbox) enforceLimits(plan *spec.Plan) error {
	l, held := &plan.Exec.Limits, &sb.state.Launch.Held
	if err := sb.enforceByGroups(plan); err != nil {
		return err
	}
	if plan.Exec.Affinity > 0 {
		cpus, err := enforce.ChooseCPUs(sb.state.ID, plan.Exec.Affinity)
		if err != nil {
			return err
		}
		held.CPUs = cpus
	}
	for _, m := range plan.View.Mounts {
		switch {
		case m.Kind == rootfs.MountTmpfs:
			held.Tmpfs = append(held.Tmpfs, m.Target)
		case l.Disk > 0 && m.Kind == rootfs.MountBind && m.Writable && !m.Pin: // what is pinned lies in a grant
			held.Write = append(held.Write, m.Source)
		}
	}
	held.Tmpfs = append(held.Tmpfs, "/dev/shm")
	if l.Disk > 0 {
		held.Write = append(held.Write, disk.Below(plan.View)...)
		held.Disk = disk.Measure(held.Write)
	}
	var cmd forkexec.Command
	limits := sb.effective(Request{})
	sb.limit(&cmd, limits, nil)
	list := slices.Clone(plan.Limits)
	if err := (&enforce.Exec{Command: &cmd, Limits: limits, Guard: sb.state.Launch.Guard, Made: true}).ReadBack(list); err != nil {
		return err
	}
	sb.state.Limits = list
	return nil
}

// enforceByGroups makes the sandbox's control groups, where its limits are held by such.
func (sb *Sandbox) enforceByGroups(plan *spec.Plan) error {
	if plan.Cgroups.Kind == "" {
		return nil
	}
	l := plan.Exec.Limits
	limits := cgroup.Limits{Memory: l.Memory, Pids: l.Pids, CPUs: l.CPUs}
	dirs, err := cgroup.Make(plan.Cgroups, cgroupName(sb.store.path, sb.state.ID), sb.state.PID, limits, sb.noteGroup)
	if err != nil {
		return fail(fault.LimitUnenforceable, `enforce = "best_effort" does without control groups`, "limit sandbox: %w", err)
	}
	sb.state.Launch.Held.Groups = enforce.Groups(plan.Cgroups.Kind, dirs)
	if plan.Cgroups.Kind == spec.BySystemd {
		sb.state.Launch.Held.Ours = 1 // a scope has to begin with a process: process 1
	}
	return nil
}

func (sb *Sandbox) noteGroup(path string) error {
	f, err := sb.store.root.OpenFile(filepath.Join(sb.state.ID, groupsFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(path + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fail(fault.StateUnusable, fault.DiskHint, "note control group: %w", err)
	}
	return nil
}

// launchIn starts an exec. Where its control group is version 2 the launcher must be near enough to it.
func (sb *Sandbox) launchIn(cmd *forkexec.Command) (*forkexec.Process, error) {
	if err := enforce.Reach(cmd.Limits.Groups); err != nil {
		return nil, err
	}
	return forkexec.Start(cmd)
}

func (sb *Sandbox) effective(req Request) enforce.Limits {
	e := &sb.state.Launch
	l := enforce.Limits{Limits: e.Limits, CPUFollows: e.CPUFollowsWall}
	if enforce.Lower(int64(l.Wall), int64(req.Timeout)) != int64(l.Wall) {
		l.Within(req.Timeout)
	}
	l.Memory, l.Pids = enforce.Lower(l.Memory, req.Memory), enforce.Lower(l.Pids, req.Pids)
	l.WatchMemory = l.Memory > 0 && !e.Held.has(forkexec.GroupMemory)
	if l.Pids > 0 && !e.Held.has(forkexec.GroupPids) {
		// A sandbox without such a limit has not looked whether it could be held so.
		l.Nproc = e.Nproc || e.Limits.Pids == 0 && forkexec.ProbeNproc()
		l.WatchPids = !l.Nproc
	}
	return l
}

// ready fails if the sandbox does not show what it did, or if an exec asks for a limit of memory that nothing would hold.
func (sb *Sandbox) ready(req Request) error {
	if err := sb.checkGranted(); err != nil {
		return err
	}
	if req.Memory == 0 || !sb.state.Launch.Userns || sb.state.BestEffort || !sb.effective(req).WatchMemory {
		return nil
	}
	return fail(fault.LimitUnenforceable, `accept less with enforce = "best_effort" in the policy`, "limit memory: %s", spec.UsernsMemory)
}

// watchDisk begins to look at what the sandbox may write, and at what its programs hold of that.
func (sb *Sandbox) watchDisk() *disk.Watch {
	held := &sb.state.Launch.Held
	w := disk.NewWatch(held.Write, held.Disk, sb.state.Launch.Limits.Disk)
	w.Held = disk.HeldBy(func() []int {
		var pids []int
		// That the sandbox has ended is seen elsewhere; then nothing is held.
		_ = stats.EachProcess(sb.state.PID, func(pid int, _ uint64) { pids = append(pids, pid) })
		return pids
	})
	return w
}

// limit puts an exec's limits into its command.
func (sb *Sandbox) limit(cmd *forkexec.Command, l enforce.Limits, watch *disk.Watch) {
	held := &sb.state.Launch.Held
	all := sb.state.Launch.Limits.Pids
	if all > 0 {
		all += held.Ours
	}
	cmd.Limits = forkexec.Limits{
		State: sb.dir, Wall: l.Wall, Idle: l.Idle, CPU: l.CPU, Memory: l.Memory, Pids: l.Pids,
		SandboxPids: all, CPUs: len(held.CPUs), Groups: cgroup.ForExec(held.Groups, l.Memory, l.Pids),
		WatchMemory: l.WatchMemory, WatchPids: l.WatchPids, Nproc: l.Nproc,
	}
	if l.WatchMemory {
		cmd.Limits.Tmpfs = held.Tmpfs
	}
	if len(held.CPUs) > 0 {
		cmd.CPUs = &unix.CPUSet{}
		for _, c := range held.CPUs {
			cmd.CPUs.Set(c)
		}
	}
	if watch != nil {
		cmd.Limits.Check = func(written int64) (bool, time.Duration) {
			_, exceeded, next := watch.Check(time.Now(), written)
			return exceeded, next
		}
	}
	core := sb.state.Launch.CoreLimit()
	cmd.Rlimits = append(l.Rlimits(), forkexec.Rlimit{Resource: unix.RLIMIT_CORE, Cur: core, Max: core})
}

// reported are the limits of one exec, and how each is held, read back from its command.
func (sb *Sandbox) reported(cmd *forkexec.Command, l enforce.Limits) ([]spec.Limit, error) {
	return (&enforce.Exec{Command: cmd, Limits: l, Guard: sb.state.Launch.Guard}).Report(sb.state.Limits)
}
