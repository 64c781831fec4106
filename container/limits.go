package container

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/cgroup"
	"github.com/sandboxrun/sandboxrun/container/disk"
	"github.com/sandboxrun/sandboxrun/container/stats"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// hold prepares all that holds the sandbox's limits, before the first program, and says what has been read back.
func (sb *Sandbox) hold(plan *spec.Plan) error {
	l, held := &plan.Exec.Limits, &sb.state.Launch.Held
	if err := sb.holdByGroups(plan); err != nil {
		return err
	}
	if plan.Exec.Affinity > 0 {
		cpus, err := chooseCPUs(sb.state.ID, plan.Exec.Affinity)
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
	if err := (&enforced{sb, &cmd, limits, true}).readBack(list); err != nil {
		return err
	}
	sb.state.Limits = list
	return nil
}

// holdByGroups makes the sandbox's control groups, where its limits are held by such.
func (sb *Sandbox) holdByGroups(plan *spec.Plan) error {
	if plan.Cgroups.Kind == "" {
		return nil
	}
	l := plan.Exec.Limits
	limits := cgroup.Limits{Memory: l.Memory, Pids: l.Pids, CPUs: l.CPUs}
	dirs, err := cgroup.Make(plan.Cgroups, cgroupName(sb.store.path, sb.state.ID), sb.state.PID, limits, sb.noteGroup)
	if err != nil {
		return fail(fault.LimitUnenforceable, `enforce = "best_effort" does without control groups`, "limit sandbox: %w", err)
	}
	sb.state.Launch.Held.Groups = execGroups(plan, dirs)
	if plan.Cgroups.Kind == spec.BySystemd {
		sb.state.Launch.Held.Ours = 1 // a scope has to begin with a process: process 1
	}
	return nil
}

// execGroups turns the sandbox's groups, a directory for each controller, into what an exec makes below them: one group
// for each directory.
func execGroups(plan *spec.Plan, dirs map[string]string) []forkexec.Group {
	bits := map[string]int{
		"memory": forkexec.GroupMemory, "pids": forkexec.GroupPids, "cpu": forkexec.GroupCPU, "cpuacct": forkexec.GroupCPUAcct,
	}
	unified := plan.Cgroups.Kind != spec.ByCgroup1
	var groups []forkexec.Group
	for _, c := range []string{"memory", "pids", "cpu", "cpuacct"} {
		dir, ok := dirs[c]
		if !ok {
			continue
		}
		at := slices.IndexFunc(groups, func(g forkexec.Group) bool { return g.Dir == dir })
		if at < 0 {
			at = len(groups)
			groups = append(groups, forkexec.Group{Dir: dir, Unified: unified})
		}
		groups[at].Controllers |= bits[c]
		if unified {
			groups[at].Controllers |= forkexec.GroupCPUAcct // cpu.stat is in every group
		}
	}
	return groups
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

// chooseCPUs chooses processors among those that the caller can run on. Different sandboxes get different ones.
func chooseCPUs(id string, n int) ([]int, error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, fmt.Errorf("read own processors: %w", err)
	}
	var list []int
	for i := range forkexec.MaxCPUs {
		if allowed.IsSet(i) {
			list = append(list, i)
		}
	}
	h := fnv.New32a()
	h.Write([]byte(id))
	start := int(h.Sum32() % uint32(len(list)))
	return slices.Concat(list[start:], list[:start])[:min(n, len(list))], nil
}

// backstop is how much more processor time one process may use than the exec, before the kernel ends it: the watcher is
// slower where the machine is very busy.
const backstop = time.Second

// launchIn starts an exec. Where its control group is version 2 the launcher must be near enough to it.
func (sb *Sandbox) launchIn(cmd *forkexec.Command) (*forkexec.Process, error) {
	if err := reachGroups(cmd.Limits.Groups); err != nil {
		return nil, err
	}
	return forkexec.Start(cmd)
}

func reachGroups(groups []forkexec.Group) error {
	for _, g := range groups {
		if !g.Unified {
			continue
		}
		if err := cgroup.Reach(g.Dir); err != nil {
			return fail(fault.LimitUnenforceable, "run sandboxrun where the service manager of your user answers, as in a login session", "start exec: %w", err)
		}
	}
	return nil
}

// effective are the limits of one exec, which may ask for less than its sandbox has, and what holds those that no control
// group does.
type effective struct {
	policy.Limits
	// cpuFollows is whether the policy says nothing of CPU time: then the program may set any limit of its own, as outside. The
	// watcher ends it all the same, and so does the wall clock.
	cpuFollows  bool
	nproc       bool // processes: RLIMIT_NPROC
	watchPids   bool // or the watcher
	watchMemory bool
}

func (sb *Sandbox) effective(req Request) effective {
	e := &sb.state.Launch
	l := effective{Limits: e.Limits, cpuFollows: e.CPUFollowsWall}
	if lower(int64(l.Wall), int64(req.Timeout)) != int64(l.Wall) {
		l.within(req.Timeout)
	}
	l.Memory, l.Pids = lower(l.Memory, req.Memory), lower(l.Pids, req.Pids)
	l.watchMemory = l.Memory > 0 && !e.Held.has(forkexec.GroupMemory)
	if l.Pids > 0 && !e.Held.has(forkexec.GroupPids) {
		// A sandbox without such a limit has not looked whether it could be held so.
		l.nproc = e.Nproc || e.Limits.Pids == 0 && forkexec.ProbeNproc()
		l.watchPids = !l.nproc
	}
	return l
}

// within gives it another time on the clock.
func (l *effective) within(wall time.Duration) {
	l.Wall = wall
	if l.cpuFollows {
		l.CPU = spec.CPUTime(wall)
	}
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
func (sb *Sandbox) limit(cmd *forkexec.Command, l effective, watch *disk.Watch) {
	held := &sb.state.Launch.Held
	all := sb.state.Launch.Limits.Pids
	if all > 0 {
		all += held.Ours
	}
	cmd.Limits = forkexec.Limits{
		State: sb.dir, Wall: l.Wall, Idle: l.Idle, CPU: l.CPU, Memory: l.Memory, Pids: l.Pids,
		SandboxPids: all, CPUs: len(held.CPUs), Groups: cgroup.ForExec(held.Groups, l.Memory, l.Pids),
		WatchMemory: l.watchMemory, WatchPids: l.watchPids, Nproc: l.nproc,
	}
	if l.watchMemory {
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
	cmd.Rlimits = append(rlimits(l), forkexec.Rlimit{Resource: unix.RLIMIT_CORE, Cur: core, Max: core})
}

// lower is the stricter of two limits; 0 is none.
func lower(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

func rlimits(l effective) []forkexec.Rlimit {
	var list []forkexec.Rlimit
	add := func(resource int, n int64) {
		if n > 0 {
			list = append(list, forkexec.Rlimit{Resource: resource, Cur: uint64(n), Max: uint64(n)})
		}
	}
	add(unix.RLIMIT_FSIZE, l.File)
	add(unix.RLIMIT_NOFILE, l.Nofile)
	if l.nproc {
		add(unix.RLIMIT_NPROC, l.Pids)
	}
	if l.CPU > 0 && !l.cpuFollows {
		add(unix.RLIMIT_CPU, int64(math.Ceil((l.CPU + backstop).Seconds())))
	}
	return list
}

// reported are the limits of one exec, and how each is held, read back from its command.
func (sb *Sandbox) reported(cmd *forkexec.Command, l effective) ([]spec.Limit, error) {
	list := slices.Clone(sb.state.Limits)
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
	if l.nproc {
		pids = spec.ByRlimit
	}
	set("pids", float64(l.Pids), pids)
	return list, (&enforced{sb, cmd, l, false}).readBack(list)
}
