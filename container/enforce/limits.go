// Package enforce owns the limits of one exec: which it has, what of the kernel's and of ours holds each, and what of that was read back.
//
// It may import cgroup, fault, forkexec and spec.
package enforce

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/cgroup"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Limits are those of one exec, which may ask for less than its sandbox has, and what holds those that no control
// group does.
type Limits struct {
	policy.Limits
	// CPUFollows is whether the policy says nothing of CPU time: then the program may set any limit of its own, as outside. The
	// watcher ends it all the same, and so does the wall clock.
	CPUFollows  bool
	Nproc       bool // processes: RLIMIT_NPROC
	WatchPids   bool // or the watcher
	WatchMemory bool
}

// Within gives it another time on the clock.
func (l *Limits) Within(wall time.Duration) {
	l.Wall = wall
	if l.CPUFollows {
		l.CPU = spec.CPUTime(wall)
	}
}

// Lower is the stricter of two limits; 0 is none.
func Lower(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// Rlimits are those that the kernel holds each of its processes to.
func (l *Limits) Rlimits() []forkexec.Rlimit {
	var list []forkexec.Rlimit
	add := func(resource int, n int64) {
		if n > 0 {
			list = append(list, forkexec.Rlimit{Resource: resource, Cur: uint64(n), Max: uint64(n)})
		}
	}
	add(unix.RLIMIT_FSIZE, l.File)
	add(unix.RLIMIT_NOFILE, l.Nofile)
	if l.Nproc {
		add(unix.RLIMIT_NPROC, l.Pids)
	}
	if l.CPU > 0 && !l.CPUFollows {
		add(unix.RLIMIT_CPU, int64(math.Ceil((l.CPU + Backstop).Seconds())))
	}
	return list
}

// ChooseCPUs chooses processors among those that the caller can run on. Different sandboxes get different ones.
func ChooseCPUs(id string, n int) ([]int, error) {
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

// Backstop is how much more processor time one process may use than the exec, before the kernel ends it: the watcher is
// slower where the machine is very busy.
const Backstop = time.Second

// Groups turns the sandbox's groups, a directory for each controller, into what an exec makes below them: one group
// for each directory.
func Groups(kind string, dirs map[string]string) []forkexec.Group {
	bits := map[string]int{
		"memory": forkexec.GroupMemory, "pids": forkexec.GroupPids, "cpu": forkexec.GroupCPU, "cpuacct": forkexec.GroupCPUAcct,
	}
	unified := kind != spec.ByCgroup1
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

// Reach makes the launcher be near enough to an exec's groups, where they are version 2.
func Reach(groups []forkexec.Group) error {
	for _, g := range groups {
		if !g.Unified {
			continue
		}
		if err := cgroup.Reach(g.Dir); err != nil {
			return fault.New(fault.LimitUnenforceable, "run sandboxrun where the service manager of your user answers, as in a login session", "start exec: %w", err)
		}
	}
	return nil
}
