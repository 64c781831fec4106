package spec

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Mechanisms that enforce a limit, from the best down.
const (
	ByCgroup2  = "cgroup2"  // a delegated cgroup, version 2
	BySystemd  = "systemd"  // the same, in a scope that systemd made
	ByCgroup1  = "cgroup1"  // cgroups of version 1
	ByRlimit   = "rlimit"   // the kernel, for each process; RLIMIT_NPROC for each user namespace
	ByAffinity = "affinity" // the program can run only on these processors
	ByWatcher  = "watcher"  // the launcher measures at intervals, and kills the exec
	ByTimer    = "timer"    // the launcher kills the exec
	ByLauncher = "launcher" // the launcher stores no more
	ByGuard    = "guard"    // the guard in the interpreter, processes.guard
)

// Limit is one limit of a policy and the mechanism that enforces it.
type Limit struct {
	Name       string  `json:"limit"`
	Value      float64 `json:"value"` // seconds, bytes or a count
	EnforcedBy string  `json:"enforced_by"`
	Verified   bool    `json:"verified"` // the launcher has read it back
}

// CPUTime is the default limit of processor time for a wall limit.
func CPUTime(wall time.Duration) time.Duration { return wallToCPU * wall }

// Limits of a machine.
const (
	maxPids = 4<<20 - 64<<10 // PID_MAX_LIMIT, the maximum of a pids controller, less what the launcher's processes need
	// wallToCPU is the default limit of processor time in units of the wall limit.
	wallToCPU = 2
	// memoryToTmpfs: the default size of a tmpfs is the memory limit divided by this.
	memoryToTmpfs = 2
	// defaultTmpfs is the size of /dev/shm too. Docker's 64 MiB break every program that passes arrays between processes.
	defaultTmpfs = 1 << 30
)

// tmpfsSize is the default size of a tmpfs. Its files count as memory.
func tmpfsSize(memory int64) int64 {
	if memory == 0 {
		return defaultTmpfs
	}
	return min(defaultTmpfs, max(memory/memoryToTmpfs, 1))
}

// limits plans what enforces each limit. A limit that nothing can enforce is an error, or a Weakness if the policy allows that.
func limits(p *policy.Policy, h *Host, plan *Plan) error {
	l := p.Limits
	if l.CPU == 0 {
		l.CPU = CPUTime(l.Wall)
		plan.Exec.CPUFollowsWall = l.CPU > 0
	}
	l.Pids = min(l.Pids, maxPids)
	plan.Exec.Limits = l
	r := ladder{policy: p, host: h, plan: plan}
	r.add("wall", l.Wall.Seconds(), ByTimer)
	r.add("idle", l.Idle.Seconds(), ByTimer)
	r.add("cpu", l.CPU.Seconds(), ByWatcher)
	r.cpus(l.CPUs)
	r.memory(l.Memory)
	pids := ByWatcher
	if h.Nproc {
		pids = ByRlimit
	}
	r.add("pids", float64(l.Pids), r.group("pids", pids))
	r.add("file", float64(l.File), ByRlimit)
	r.add("disk", float64(l.Disk), ByWatcher)
	r.nofile(l.Nofile)
	r.add("output", float64(l.Output), ByLauncher)
	r.add("steps", float64(p.Processes.Steps), ByGuard)
	if slices.ContainsFunc(plan.Limits, func(l Limit) bool { return l.EnforcedBy == h.Cgroups.Kind }) {
		plan.Cgroups = h.Cgroups
	}
	plan.Nproc = h.Nproc
	if r.failed == nil {
		r.checkAllPlanned(l)
	}
	if r.failed != nil {
		return r.failed
	}
	return nil
}

// checkAllPlanned fails for a limit of the policy that the code above does not plan, because a new limit must never be ignored.
func (r *ladder) checkAllPlanned(l policy.Limits) {
	v := reflect.ValueOf(l)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		decided := slices.ContainsFunc(r.plan.Limits, func(d Limit) bool { return d.Name == name }) ||
			slices.ContainsFunc(r.plan.Weaker, func(w Weakness) bool { return w.What == "limits."+name })
		if !v.Field(i).IsZero() && !decided {
			r.failed = fault.New(fault.LimitUnenforceable, "remove it from the policy", "%s", "nothing enforces limits."+name)
		}
	}
}

type ladder struct {
	policy *policy.Policy
	host   *Host
	plan   *Plan
	failed *fault.Error
}

func (r *ladder) add(name string, value float64, by string) {
	if value > 0 {
		r.plan.Limits = append(r.plan.Limits, Limit{Name: name, Value: value, EnforcedBy: by})
	}
}

// group is the kind of cgroups if they have the controller, else next.
func (r *ladder) group(controller, next string) string {
	if slices.Contains(r.host.Cgroups.Controllers, controller) {
		return r.host.Cgroups.Kind
	}
	return next
}

// cpus is enforced by a quota. Without a cgroup, affinity can enforce a whole number of processors.
func (r *ladder) cpus(n float64) {
	whole := math.Ceil(n)
	switch by := r.group("cpu", ""); {
	case n == 0:
	case by != "":
		r.add("cpus", n, by)
	case whole == n || int(whole) > r.host.CPUs:
		r.affinity(min(int(whole), r.host.CPUs), n)
	default:
		r.weaker("cpus", fmt.Sprintf("limits.cpus = %v", n),
			fmt.Sprintf("without a cgroup only whole processors can be given: %v", whole),
			"use a whole number, or "+groupHint(r.host.Cgroups))
		r.affinity(int(whole), whole)
	}
}

// affinity limits the program to n processors. The seccomp filter keeps it from changing that.
func (r *ladder) affinity(n int, value float64) {
	r.plan.Exec.Affinity = n
	r.add("cpus", value, ByAffinity)
}

// memory is watched where no cgroup counts it. The watcher finds what a program keeps in the exec's namespaces, and not what it keeps
// in others.
func (r *ladder) memory(n int64) {
	by := r.group("memory", ByWatcher)
	if n > 0 && by == ByWatcher && r.policy.Processes.Userns {
		r.weaker("memory", "limits.memory", UsernsMemory, "leave processes.userns or limits.memory out, or "+groupHint(r.host.Cgroups))
	}
	r.add("memory", float64(n), by)
}

// UsernsMemory is why a limit of memory holds only in part with processes.userns.
const UsernsMemory = "without a cgroup the launcher does not find the memory that a program keeps in namespaces of its own (processes.userns)"

// nofile is never silently lower than asked, because a program that needs the number would find out only later.
func (r *ladder) nofile(n int64) {
	if hard := r.host.Nofile; n > 0 && uint64(n) > hard {
		r.weaker("nofile", fmt.Sprintf("limits.nofile = %d", n), fmt.Sprintf("the caller may not open more than %d files", hard),
			fmt.Sprintf("ask for at most %d, or raise the caller's own limit (ulimit -Hn)", hard))
		n = int64(hard)
		r.plan.Exec.Limits.Nofile = n
	}
	r.add("nofile", float64(n), ByRlimit)
}

// weaker adds a limit that can be enforced only in part. Under "required" the first one is the error.
func (r *ladder) weaker(name, what, reason, hint string) {
	if r.policy.Enforce == policy.EnforceBestEffort {
		r.plan.Weaker = append(r.plan.Weaker, Weakness{What: "limits." + name, Reason: reason})
		r.plan.Warnings = append(r.plan.Warnings, fmt.Sprintf("%s cannot be enforced: %s", what, reason))
		return
	}
	if r.failed == nil {
		r.failed = fault.New(fault.LimitUnenforceable, hint+`, or accept less with enforce = "best_effort"`, "%s cannot be enforced: %s", what, reason)
	}
}

func groupHint(c Cgroups) string {
	const want = "run where a cgroup is delegated to you"
	if c.Reason == "" {
		return want
	}
	return want + " (" + c.Reason + ")"
}
