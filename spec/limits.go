package spec

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
)

// How a limit is held: the ladder, from the best down.
const (
	ByCgroup2  = "cgroup2"  // a delegated control group, version 2
	BySystemd  = "systemd"  // the same in a scope that systemd has made
	ByCgroup1  = "cgroup1"  // control groups of version 1
	ByRlimit   = "rlimit"   // the kernel, for each process; RLIMIT_NPROC for each user namespace
	ByAffinity = "affinity" // the only processors that the program can run on
	ByWatcher  = "watcher"  // the launcher looks now and then, and ends the exec
	ByTimer    = "timer"    // the launcher ends the exec
	ByLauncher = "launcher" // the launcher keeps no more
)

// Limit says how one limit of a policy is held.
type Limit struct {
	Name       string  `json:"limit"`
	Value      float64 `json:"value"` // seconds, bytes or a number of things
	EnforcedBy string  `json:"enforced_by"`
	Verified   bool    `json:"verified"` // it has been read back
}

// Cgroups is which control groups a sandbox can have to itself on this machine, found by making one.
type Cgroups struct {
	Kind        string            // ByCgroup2, BySystemd, ByCgroup1, or "" for none
	Parents     map[string]string // controller -> the directory in which the sandbox's own is made; systemd has none
	Controllers []string          // of "memory", "pids", "cpu" and "cpuacct", those that work
	Reason      string            // why there is none, or no better kind: one line for the user
}

// CPUTime is the processor time that an exec of so much time on the clock has where the policy does not say.
func CPUTime(wall time.Duration) time.Duration { return wallToCPU * wall }

// Limits of a machine.
const (
	maxPids = 4<<20 - 64<<10 // PID_MAX_LIMIT, the most that a pids controller takes, less what our own processes need
	// wallToCPU is how much more processor time than time on the clock is allowed where the policy does not say.
	wallToCPU = 2
	// memoryToTmpfs is what part of the memory a file system in memory may take where the policy does not say.
	memoryToTmpfs = 2
	// defaultTmpfs is the size of /dev/shm too. Docker's 64 MiB break every program that passes arrays between processes.
	defaultTmpfs = 1 << 30
)

// tmpfsSize is how large a file system in memory is of which the policy does not say: what lies there is memory.
func tmpfsSize(memory int64) int64 {
	if memory == 0 {
		return defaultTmpfs
	}
	return min(defaultTmpfs, max(memory/memoryToTmpfs, 1))
}

// limits decides how each limit is held. What cannot be is an error, or a Weakness where the policy allows that.
func limits(p *Policy, h *Host, plan *Plan) error {
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
	r.add("memory", float64(l.Memory), r.group("memory", ByWatcher))
	pids := ByWatcher
	if h.Nproc {
		pids = ByRlimit
	}
	r.add("pids", float64(l.Pids), r.group("pids", pids))
	r.add("file", float64(l.File), ByRlimit)
	r.add("disk", float64(l.Disk), ByWatcher)
	r.nofile(l.Nofile)
	r.add("output", float64(l.Output), ByLauncher)
	if slices.ContainsFunc(plan.Limits, func(l Limit) bool { return l.EnforcedBy == h.Cgroups.Kind }) {
		plan.Cgroups = h.Cgroups
	}
	plan.Nproc = h.Nproc
	if r.failed == nil {
		r.forgotten(l)
	}
	if r.failed != nil {
		return r.failed
	}
	return nil
}

// forgotten finds a limit that a policy can ask for and nothing above has decided about: that it is ignored must not be
// found out by a program that goes beyond it.
func (r *ladder) forgotten(l Limits) {
	v := reflect.ValueOf(l)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		decided := slices.ContainsFunc(r.plan.Limits, func(d Limit) bool { return d.Name == name }) ||
			slices.ContainsFunc(r.plan.Weaker, func(w Weakness) bool { return w.What == "limits."+name })
		if !v.Field(i).IsZero() && !decided {
			r.failed = &Error{Code: "limit_unenforceable", Message: "nothing enforces limits." + name, Hint: "remove it from the policy"}
		}
	}
}

type ladder struct {
	policy *Policy
	host   *Host
	plan   *Plan
	failed *Error
}

func (r *ladder) add(name string, value float64, by string) {
	if value > 0 {
		r.plan.Limits = append(r.plan.Limits, Limit{Name: name, Value: value, EnforcedBy: by})
	}
}

// group is the rung of control groups where there is one for a controller, else the next.
func (r *ladder) group(controller, next string) string {
	if slices.Contains(r.host.Cgroups.Controllers, controller) {
		return r.host.Cgroups.Kind
	}
	return next
}

// cpus is held by a quota. Without one the program can be kept on so many processors as a whole number says.
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
			fmt.Sprintf("without a control group only whole processors can be given: %v", whole),
			"use a whole number, or "+groupHint(r.host.Cgroups))
		r.affinity(int(whole), whole)
	}
}

// affinity keeps the program on n processors, which it may then not change.
func (r *ladder) affinity(n int, value float64) {
	r.plan.Exec.Affinity = n
	r.add("cpus", value, ByAffinity)
}

// nofile is given as asked, or not at all: a program that counts on it must not find out later.
func (r *ladder) nofile(n int64) {
	if hard := r.host.Nofile; n > 0 && uint64(n) > hard {
		r.weaker("nofile", fmt.Sprintf("limits.nofile = %d", n), fmt.Sprintf("the caller may not open more than %d files", hard),
			fmt.Sprintf("ask for at most %d, or raise the caller's own limit (ulimit -Hn)", hard))
		n = int64(hard)
		r.plan.Exec.Limits.Nofile = n
	}
	r.add("nofile", float64(n), ByRlimit)
}

// weaker notes what cannot be had; the first such thing is the error under "required".
func (r *ladder) weaker(name, what, reason, hint string) {
	if r.policy.Enforce == EnforceBestEffort {
		r.plan.Weaker = append(r.plan.Weaker, Weakness{What: "limits." + name, Reason: reason})
		r.plan.Warnings = append(r.plan.Warnings, fmt.Sprintf("%s cannot be enforced: %s", what, reason))
		return
	}
	if r.failed == nil {
		r.failed = &Error{
			Code: "limit_unenforceable", Message: fmt.Sprintf("%s cannot be enforced: %s", what, reason),
			Hint: hint + `, or accept less with enforce = "best_effort"`,
		}
	}
}

func groupHint(c Cgroups) string {
	const want = "run where a control group is delegated to you"
	if c.Reason == "" {
		return want
	}
	return want + " (" + c.Reason + ")"
}
