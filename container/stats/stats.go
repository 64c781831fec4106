package stats

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandboxrun/sandboxrun/container/cgroup"
	"github.com/sandboxrun/sandboxrun/container/disk"
	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/relayproc"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Stats is what a sandbox's programs use at one moment. Our own process 1 and the reapers do not count. Nil is a figure that is not
// known, or a limit that there is not.
type Stats struct {
	Time    time.Time `json:"time"`
	Sandbox string    `json:"sandbox"`
	Execs   int       `json:"execs"` // that run

	// MemoryBytes is what cannot be had back by forgetting what is on disk too. Where no control group counts, it is the
	// sum of the processes' shares, with what lies in file systems in memory.
	MemoryBytes int64  `json:"memory_bytes"`
	MemoryLimit *int64 `json:"memory_limit_bytes"`

	CPUMS           float64  `json:"cpu_ms"`       // of the execs that run, since each was started
	CPULimitMS      *float64 `json:"cpu_limit_ms"` // of each
	CPUPercent      *float64 `json:"cpu_percent"`  // of one processor, since the last look
	CPULimitPercent *float64 `json:"cpu_limit_percent"`

	Pids      int    `json:"pids"` // processes and threads
	PidsLimit *int64 `json:"pids_limit"`

	DiskBytes *int64 `json:"disk_bytes"` // written to writable grants, where that is limited
	DiskLimit *int64 `json:"disk_limit_bytes"`

	// Network is nil where nothing is forwarded and no host allowed.
	Network *relayproc.Stats `json:"network"`

	// EachExec names the limits that hold for each exec by itself: "cpu", and those that nothing but the launcher holds.
	EachExec []string `json:"each_exec"`
}

// Sandbox is what a Meter needs of the sandbox that it looks at.
type Sandbox struct {
	ID       string
	PID      int              // of process 1
	Init     *os.File         // its pidfd
	Limits   policy.Limits    // of each exec
	Reported []spec.Limit     // the limits as results have them
	Groups   []forkexec.Group // that count
	Tmpfs    []string         // its file systems in memory
	Disk     *disk.Watch      // nil: what is written is not limited
	Inside   func() (lookup.Root, error)
	Network  func() (*relayproc.Stats, error)
	Lost     func() error // that the sandbox has ended
}

// New begins to look. The sandbox must stay open meanwhile.
func New(sb Sandbox) *Meter { return &Meter{sb: sb, disk: sb.Disk} }

// Meter looks at what a sandbox uses, again and again.
type Meter struct {
	sb   Sandbox
	disk *disk.Watch

	last  time.Time
	busy  time.Duration            // processor time used until then
	execs map[uint64]time.Duration // the same of each exec, where nothing but /proc counts
}

// Read says what is used now. That the sandbox has ended is an error with the code "sandbox_lost".
func (m *Meter) Read() (Stats, error) {
	if !procfs.PidfdAlive(m.sb.Init) {
		return Stats{}, m.sb.Lost()
	}
	now := time.Now()
	u, err := m.usage()
	if err != nil {
		return Stats{}, err
	}
	l := &m.sb.Limits
	s := Stats{
		Time: now.UTC(), Sandbox: m.sb.ID, Execs: u.execs, MemoryBytes: u.memory, CPUMS: result.Milliseconds(u.cpu), Pids: u.tasks,
		MemoryLimit: limitOf(l.Memory), CPULimitMS: limitOf(result.Milliseconds(l.CPU)), CPULimitPercent: limitOf(percent * l.CPUs),
		PidsLimit: limitOf(l.Pids), DiskLimit: limitOf(l.Disk), EachExec: eachExec(m.sb.Reported),
	}
	if !m.last.IsZero() {
		load := math.Round(max(0, (u.busy-m.busy).Seconds()/now.Sub(m.last).Seconds())*percent*10) / 10
		s.CPUPercent = &load
	}
	m.last, m.busy = now, u.busy
	if s.Network, err = m.sb.Network(); err != nil {
		return Stats{}, err
	}
	if m.disk != nil {
		used, _, _ := m.disk.Check(now, -1)
		s.DiskBytes = &used
	}
	return s, nil
}

const percent = 100

// limitOf is nil where there is no limit.
func limitOf[T int64 | float64](n T) *T {
	if n <= 0 {
		return nil
	}
	return &n
}

func eachExec(limits []spec.Limit) []string {
	list := []string{}
	for _, l := range limits {
		if l.EnforcedBy == spec.ByWatcher && slices.Contains([]string{"cpu", "memory", "pids"}, l.Name) {
			list = append(list, l.Name)
		}
	}
	return list
}

// used are the figures themselves.
type used struct {
	execs  int
	memory int64
	tasks  int
	cpu    time.Duration // of the execs that run
	busy   time.Duration // of all; only what has been added since the last look means something
}

// usage asks the control groups, and reads the processes for what the groups do not count.
func (m *Meter) usage() (used, error) {
	const all = forkexec.GroupMemory | forkexec.GroupPids | forkexec.GroupCPUAcct
	u, counted := byGroups(m.sb.Groups)
	if counted == all {
		return u, nil
	}
	p, err := m.byProcesses()
	if err != nil {
		return used{}, err
	}
	p.memory = choose(counted&forkexec.GroupMemory != 0, u.memory, p.memory)
	p.tasks = choose(counted&forkexec.GroupPids != 0, u.tasks, p.tasks)
	if counted&forkexec.GroupCPUAcct != 0 {
		p.cpu, p.busy = u.cpu, u.busy
	}
	return p, nil
}

func choose[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// byGroups reads what control groups count, and says by a bit for each controller which figures these are.
func byGroups(groups []forkexec.Group) (u used, counted int) {
	for _, g := range groups {
		has := func(c int) bool { return g.Controllers&c != 0 }
		execs, ok := busyGroups(g.Dir)
		if !ok {
			continue // gone: the sandbox is ending
		}
		u.execs = max(u.execs, len(execs))
		tells := func(c int, ok bool) {
			if ok {
				counted |= c
			}
		}
		if has(forkexec.GroupMemory) {
			u.memory, ok = groupMemory(g)
			tells(forkexec.GroupMemory, ok)
		}
		if has(forkexec.GroupPids) {
			u.tasks, ok = groupTasks(execs)
			tells(forkexec.GroupPids, ok)
		}
		if has(forkexec.GroupCPUAcct) {
			u.busy, ok = groupCPU(g, g.Dir)
			tells(forkexec.GroupCPUAcct, ok)
			for _, dir := range execs {
				n, _ := groupCPU(g, dir) // one that has ended meanwhile no longer runs
				u.cpu += n
			}
		}
	}
	return u, counted
}

// busyGroups are the groups of the execs that run: below the sandbox's own, named as they are, and not empty.
func busyGroups(dir string) (list []string, ok bool) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		number, is := strings.CutPrefix(e.Name(), "e")
		if !is || !e.IsDir() || strings.Trim(number, "0123456789") != "" {
			continue
		}
		sub := filepath.Join(dir, e.Name())
		if procs, err := os.ReadFile(filepath.Join(sub, "cgroup.procs")); err == nil && len(procs) > 0 {
			list = append(list, sub)
		}
	}
	return list, err == nil
}

// groupMemory is without what can be had back at once, as other tools that show it do.
func groupMemory(g forkexec.Group) (int64, bool) {
	f := cgroup.FilesOf(g.Unified)
	n, ok := cgroup.Number(filepath.Join(g.Dir, f.MemoryUsed), "")
	if reclaimable, there := cgroup.Number(filepath.Join(g.Dir, f.MemoryStat), f.Reclaimable); there {
		n = max(0, n-reclaimable)
	}
	return n, ok
}

// groupTasks counts processes and threads, less the reaper of each exec.
func groupTasks(execs []string) (int, bool) {
	sum := 0
	for _, dir := range execs {
		n, ok := cgroup.Number(filepath.Join(dir, cgroup.FilesOf(true).Tasks), "")
		if _, err := os.Stat(dir); err == nil && !ok {
			return 0, false // it is there and does not count
		}
		sum += max(0, int(n)-1)
	}
	return sum, true
}

func groupCPU(g forkexec.Group, dir string) (time.Duration, bool) {
	n, ok := cgroup.Count(dir, cgroup.FilesOf(g.Unified).CPU)
	return time.Duration(n) * time.Microsecond, ok
}
