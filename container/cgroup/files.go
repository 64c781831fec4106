package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sandboxrun/sandboxrun/forkexec"
)

// Files are the names of the files of a control group, in one of the two versions. Those of limits and counters stand here alone; C gets
// them in lists (ForExec).
type Files struct {
	Join         string // a thread that writes 0 into it is in the group; version 2 needs none
	Memory, Swap string // limits in bytes; Swap of version 1 is that of memory and swap together
	Pids         string // limit of processes and threads
	MemoryUsed   string
	MemoryStat   string
	Reclaimable  string // the word in MemoryStat: what the kernel can have back at once
	Tasks        string // how many processes and threads there are

	CPU, Anon, Shmem, OOMKills, PidsRefused forkexec.Counter
}

// FilesOf are the names of one version.
func FilesOf(unified bool) Files {
	f := Files{
		Join: "tasks", Memory: "memory.limit_in_bytes", Swap: "memory.memsw.limit_in_bytes", MemoryUsed: "memory.usage_in_bytes",
		MemoryStat: "memory.stat", Reclaimable: "total_inactive_file", Pids: "pids.max", Tasks: "pids.current",
		CPU:      forkexec.Counter{File: "cpuacct.usage", Divisor: int64(time.Microsecond)},
		Anon:     forkexec.Counter{File: "memory.stat", Word: "total_rss", Divisor: 1},
		Shmem:    forkexec.Counter{File: "memory.stat", Word: "total_shmem", Divisor: 1},
		OOMKills: forkexec.Counter{File: "memory.oom_control", Word: "oom_kill", Divisor: 1},

		PidsRefused: forkexec.Counter{File: "pids.events", Word: "max", Divisor: 1},
	}
	if unified {
		f.Join, f.Memory, f.Swap, f.MemoryUsed, f.Reclaimable = "", "memory.max", "memory.swap.max", "memory.current", "inactive_file"
		f.CPU = forkexec.Counter{File: "cpu.stat", Word: "usage_usec", Divisor: 1}
		f.Anon.Word, f.Shmem.Word, f.OOMKills.File = "anon", "shmem", "memory.events"
	}
	return f
}

// swap is the limit that goes with one of memory: version 2 counts swap alone.
func (f *Files) swap(memory int64, unified bool) int64 {
	if unified {
		return 0
	}
	return memory
}

// ForExec plans what an exec makes below the sandbox's groups: a group for each, with its limits and its counters. memory is in bytes;
// 0 is no limit.
func ForExec(groups []forkexec.Group, memory, pids int64) []forkexec.Group {
	list := make([]forkexec.Group, len(groups))
	for i, g := range groups {
		f := FilesOf(g.Unified)
		has := func(controller int) bool { return g.Controllers&controller != 0 }
		// In version 1 the group of cpu alone limits the sandbox as a whole and counts nothing.
		g.Own, g.Join = g.Unified || g.Controllers != forkexec.GroupCPU, f.Join
		if has(forkexec.GroupMemory) {
			g.Counters[forkexec.CountAnon], g.Counters[forkexec.CountShmem], g.Counters[forkexec.CountOOMKills] = f.Anon, f.Shmem, f.OOMKills
		}
		if has(forkexec.GroupMemory) && memory > 0 {
			g.Writes = append(g.Writes, forkexec.Write{File: f.Memory, Value: memory},
				forkexec.Write{File: f.Swap, Value: f.swap(memory, g.Unified), Optional: true}) // not there where the kernel has no swap to count
		}
		if has(forkexec.GroupPids) {
			g.Counters[forkexec.CountPidsRefused], g.Shared = f.PidsRefused, f.Pids
		}
		if has(forkexec.GroupPids) && pids > 0 {
			g.Writes = append(g.Writes, forkexec.Write{File: f.Pids, Value: pids + 1}) // the reaper
		}
		if has(forkexec.GroupCPUAcct) {
			g.Counters[forkexec.CountCPU] = f.CPU
		}
		list[i] = g
	}
	return list
}

// Files of CPU time.
const (
	CPUMax    = "cpu.max" // version 2
	cfsQuota  = "cpu.cfs_quota_us"
	cfsPeriod = "cpu.cfs_period_us"
)

// Quota reads how many processors' time a group may use.
func Quota(dir string, unified bool) (float64, error) {
	var quota, period float64
	if unified {
		text, err := ReadControl(filepath.Join(dir, CPUMax))
		if _, err2 := fmt.Sscan(text, &quota, &period); err != nil || err2 != nil {
			return 0, errors.Join(err, err2)
		}
		return quota / period, nil
	}
	n, ok := Number(filepath.Join(dir, cfsQuota), "")
	in, ok2 := Number(filepath.Join(dir, cfsPeriod), "")
	if !ok || !ok2 || in <= 0 {
		return 0, errors.New(cfsQuota + " cannot be read")
	}
	return float64(n) / float64(in), nil
}

// Count reads a counter of a group.
func Count(dir string, c forkexec.Counter) (int64, bool) {
	n, ok := Number(filepath.Join(dir, c.File), c.Word)
	return n / max(1, c.Divisor), ok
}
