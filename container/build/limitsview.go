package build

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/cgroup"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Run times size heaps and pools by the limits of the control group that they find themselves in, else by the machine, and
// then meet the sandbox's limit before they collect garbage (kubernetes/kubernetes#103944). So every sandbox with such
// limits shows them in files at the usual path, in the form of cgroup version 2, whatever mechanism enforces them.
const (
	limitsDir   = "/sys/fs/cgroup"
	hierarchies = limitsDir + "/.hierarchies" // what /proc/cgroups says in the sandbox
)

// showsLimits reports whether there are limits to be shown, and nothing of the host at their paths.
func showsLimits(plan *spec.Plan) bool {
	l := plan.Exec.Limits
	if l.Memory == 0 && l.CPUs == 0 {
		return false
	}
	for _, m := range plan.View.Mounts {
		if slices.Contains([]string{"/", "/sys", "/sys/fs"}, m.Target) || strings.HasPrefix(m.Target, limitsDir) {
			return false
		}
	}
	return true
}

// limitsView makes the files.
func (s *steps) limitsView(plan *spec.Plan) {
	if !showsLimits(plan) {
		return
	}
	for _, dir := range []string{"/sys", "/sys/fs", limitsDir} {
		if !s.made.has(dir) {
			s.ops = append(s.ops, forkexec.Op{Kind: forkexec.OpMkdir, Target: newRoot + dir, Flags: 0o755})
			s.made.add(dir)
		}
	}
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	s.ops = append(s.ops, forkexec.Op{Kind: forkexec.OpCgroup, Target: newRoot + limitsDir})
	s.mount(forkexec.Op{Source: "limits", Target: newRoot + limitsDir, Type: "tmpfs", Data: "mode=0555,size=64k,nr_inodes=16", Flags: safe})
	for name, text := range limitFiles(plan.Exec.Limits) {
		s.ops = append(s.ops, forkexec.Op{Kind: forkexec.OpFile, Target: newRoot + limitsDir + "/" + name, Data: text + "\n", Flags: 0o444})
	}
	s.ops = append(s.ops, forkexec.Op{Kind: forkexec.OpFile, Target: newRoot + hierarchies, Data: hierarchiesText, Flags: 0o444})
	s.mount(forkexec.Op{Target: newRoot + limitsDir, Flags: unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | safe})
}

const hierarchiesText = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t0\t1\t1\ncpu\t0\t1\t1\ncpuacct\t0\t1\t1\nmemory\t0\t1\t1\npids\t0\t1\t1\n"

// limitFiles are the files of a control group that say its limits.
func limitFiles(l policy.Limits) map[string]string {
	number := func(n int64) string {
		if n == 0 {
			return "max"
		}
		return fmt.Sprint(n)
	}
	quota := "max"
	if l.CPUs > 0 {
		quota = fmt.Sprint(int64(math.Ceil(l.CPUs * cgroup.Period)))
	}
	names := cgroup.FilesOf(true)
	return map[string]string{
		"cgroup.controllers": "cpu memory pids", names.Memory: number(l.Memory), "memory.high": "max", names.Swap: "0",
		cgroup.CPUMax: fmt.Sprintf("%s %d", quota, cgroup.Period), names.Pids: number(l.Pids),
	}
}

// hidesHierarchies reports whether the host's /proc/cgroups has to be covered: it says that memory is limited by version 1,
// where no run time finds the files.
func hidesHierarchies(plan *spec.Plan) bool {
	data, err := os.ReadFile("/proc/cgroups")
	if err != nil || !showsLimits(plan) {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && !strings.HasPrefix(f[0], "#") && f[1] != "0" {
			return true
		}
	}
	return false
}
