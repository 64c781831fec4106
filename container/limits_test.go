package container

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/cgroup"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// madeUp is a sandbox that does not exist, with such a launch.
func madeUp(l Launch) *Sandbox { return &Sandbox{state: &State{ID: "x", Launch: l}} }

func TestLower(t *testing.T) {
	for _, c := range [][3]int64{{0, 0, 0}, {0, 5, 5}, {5, 0, 5}, {5, 7, 5}, {7, 5, 5}, {5, -1, 5}, {0, -1, -1}} {
		if got := lower(c[0], c[1]); got != c[2] && c[1] >= 0 {
			t.Errorf("lower(%d, %d) = %d, want %d", c[0], c[1], got, c[2])
		}
	}
	if lower(5, -1) != 5 {
		t.Error("a negative limit lifts one")
	}
}

// TestEffectiveLimits: an exec may ask for less than its sandbox has, and never for more.
func TestEffectiveLimits(t *testing.T) {
	both := Held{Groups: []forkexec.Group{{Dir: "/g", Controllers: forkexec.GroupMemory | forkexec.GroupPids}}}
	asked := policy.Limits{Wall: 10 * time.Second, CPU: 20 * time.Second, Memory: 1000, Pids: 50}
	for _, c := range []struct {
		name string
		l    Launch
		req  Request
		want effective
	}{
		{"nothing", Launch{}, Request{}, effective{}},
		{
			"in groups", Launch{Exec: spec.Exec{Limits: asked}, Held: both}, Request{}, effective{Limits: asked},
		},
		{
			"watched",
			Launch{Exec: spec.Exec{Limits: asked}},
			Request{},
			effective{Limits: asked, watchMemory: true, watchPids: true},
		},
		{
			"by rlimit",
			Launch{Exec: spec.Exec{Limits: asked}, Nproc: true},
			Request{},
			effective{Limits: asked, watchMemory: true, nproc: true},
		},
		{
			"less",
			Launch{Exec: spec.Exec{Limits: asked}, Held: both},
			Request{Memory: 10, Pids: 5},
			effective{Limits: policy.Limits{Wall: asked.Wall, CPU: asked.CPU, Memory: 10, Pids: 5}},
		},
		{"more", Launch{Exec: spec.Exec{Limits: asked}, Held: both}, Request{Memory: 1 << 40, Pids: 1 << 20}, effective{Limits: asked}},
		{
			"less time",
			Launch{Exec: spec.Exec{Limits: asked}, Held: both},
			Request{Timeout: 5 * time.Second},
			effective{Limits: policy.Limits{Wall: 5 * time.Second, CPU: asked.CPU, Memory: 1000, Pids: 50}},
		},
		{
			"less time, which processor time follows",
			Launch{Exec: spec.Exec{Limits: asked, CPUFollowsWall: true}, Held: both},
			Request{Timeout: 5 * time.Second},
			effective{Limits: policy.Limits{Wall: 5 * time.Second, CPU: 10 * time.Second, Memory: 1000, Pids: 50}, cpuFollows: true},
		},
		{
			"of an exec alone, in a sandbox without",
			Launch{Nproc: true},
			Request{Memory: 7, Pids: 3},
			effective{Limits: policy.Limits{Memory: 7, Pids: 3}, watchMemory: true, nproc: true},
		},
	} {
		if got := madeUp(c.l).effective(c.req); got != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

func TestRlimits(t *testing.T) {
	for _, c := range []struct {
		name string
		l    effective
		want map[int]uint64
	}{
		{"none", effective{}, nil},
		{"files", effective{Limits: policy.Limits{File: 7, Nofile: 8}}, map[int]uint64{unix.RLIMIT_FSIZE: 7, unix.RLIMIT_NOFILE: 8}},
		{"processes that a group holds", effective{Limits: policy.Limits{Pids: 9}}, nil},
		{"processes", effective{Limits: policy.Limits{Pids: 9}, nproc: true}, map[int]uint64{unix.RLIMIT_NPROC: 9}},
		// The kernel's is later than the watcher's, and in whole seconds.
		{"processor time", effective{Limits: policy.Limits{CPU: 1500 * time.Millisecond}}, map[int]uint64{unix.RLIMIT_CPU: 3}},
		{"of which the policy says nothing", effective{Limits: policy.Limits{CPU: time.Minute}, cpuFollows: true}, nil},
	} {
		got := map[int]uint64{}
		for _, r := range rlimits(c.l) {
			if r.Cur != r.Max {
				t.Errorf("%s: a program could raise %+v", c.name, r)
			}
			got[r.Resource] = r.Max
		}
		if len(got) != len(c.want) || len(got) > 0 && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestLimitOfACommand: what an exec's command says of its limits, and that no file is left where a program crashes.
func TestLimitOfACommand(t *testing.T) {
	l := Launch{
		Exec: spec.Exec{Limits: policy.Limits{Pids: 10, Memory: 100}},
		Held: Held{Ours: 1, CPUs: []int{0, 3}, Tmpfs: []string{"/tmp"}, Groups: []forkexec.Group{{Dir: "/g", Controllers: forkexec.GroupPids}}},
	}
	for _, handled := range []bool{false, true} {
		l.CoreHandled = handled
		sb := madeUp(l)
		var cmd forkexec.Command
		sb.limit(&cmd, sb.effective(Request{Pids: 4}), nil)
		if cmd.Limits.Pids != 4 || cmd.Limits.SandboxPids != 11 || cmd.Limits.CPUs != 2 || !cmd.Limits.WatchMemory || cmd.Limits.WatchPids || cmd.Limits.Check != nil {
			t.Errorf("%+v", cmd.Limits)
		}
		if !slices.Equal(cmd.Limits.Tmpfs, l.Held.Tmpfs) || cmd.CPUs.Count() != 2 || !cmd.CPUs.IsSet(3) || cmd.CPUs.IsSet(1) {
			t.Errorf("%+v, %v", cmd.Limits.Tmpfs, cmd.CPUs)
		}
		core := slices.IndexFunc(cmd.Rlimits, func(r forkexec.Rlimit) bool { return r.Resource == unix.RLIMIT_CORE })
		want := uint64(1) // with which the kernel starts no handler
		if handled {
			want = 0
		}
		if core < 0 || cmd.Rlimits[core].Cur != want || cmd.Rlimits[core].Max != want {
			t.Errorf("core: %+v", cmd.Rlimits)
		}
	}
}

// TestChooseCPUs: as many as asked for, where there are so many, all of them the caller's own, and none twice.
func TestChooseCPUs(t *testing.T) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= allowed.Count()+2; n++ {
		for i := range 20 {
			list, err := chooseCPUs(fmt.Sprint("sandbox", i), n)
			if err != nil || len(list) != min(n, allowed.Count()) {
				t.Fatal(list, err)
			}
			slices.Sort(list)
			if len(slices.Compact(list)) != min(n, allowed.Count()) || slices.ContainsFunc(list, func(c int) bool { return !allowed.IsSet(c) }) {
				t.Errorf("%d of %d: %v", n, allowed.Count(), list)
			}
		}
	}
}

func TestExecGroups(t *testing.T) {
	const memory, pids, cpu, acct = forkexec.GroupMemory, forkexec.GroupPids, forkexec.GroupCPU, forkexec.GroupCPUAcct
	for _, c := range []struct {
		name, kind string
		dirs       map[string]string
		want       []forkexec.Group
	}{
		{"none", spec.ByCgroup1, nil, nil},
		{"version 2: one directory", spec.ByCgroup2, map[string]string{"memory": "/u", "pids": "/u"}, []forkexec.Group{{Dir: "/u", Unified: true, Controllers: memory | pids | acct}}},
		{"systemd's", spec.BySystemd, map[string]string{"cpu": "/s"}, []forkexec.Group{{Dir: "/s", Unified: true, Controllers: cpu | acct}}},
		{
			"version 1: one each, and two together", spec.ByCgroup1,
			map[string]string{"memory": "/m", "cpu": "/c", "cpuacct": "/c", "pids": "/p"},
			[]forkexec.Group{{Dir: "/m", Controllers: memory}, {Dir: "/p", Controllers: pids}, {Dir: "/c", Controllers: cpu | acct}},
		},
		{"what nobody knows", spec.ByCgroup1, map[string]string{"rdma": "/r"}, nil},
	} {
		plan := &spec.Plan{}
		plan.Cgroups.Kind = c.kind
		if got := execGroups(plan, c.dirs); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// groupFiles makes a directory that looks like a control group.
func groupFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestGroupsAreReadBack: a group that has no limit, another one or cannot be read holds nothing, and that is an error.
func TestGroupsAreReadBack(t *testing.T) {
	all := forkexec.GroupMemory | forkexec.GroupPids | forkexec.GroupCPU
	for _, c := range []struct {
		name    string
		limit   string
		value   float64
		unified bool
		files   map[string]string
		fails   string
	}{
		{"memory", "memory", 4096, true, map[string]string{"memory.max": "4096\n"}, ""},
		{"memory of version 1", "memory", 4096, false, map[string]string{"memory.limit_in_bytes": "4096\n"}, ""},
		{"memory without a limit", "memory", 4096, true, map[string]string{"memory.max": "max\n"}, "says that there is no limit"},
		{"memory, more than asked for", "memory", 4096, true, map[string]string{"memory.max": "8192\n"}, "is not held: " + spec.ByCgroup2 + " holds 8192"},
		{"memory that cannot be read", "memory", 4096, true, nil, "cannot be read"},
		{"memory of the other version's file", "memory", 4096, true, map[string]string{"memory.limit_in_bytes": "4096\n"}, "cannot be read"},
		{"memory of nothing", "memory", 4096, true, map[string]string{"memory.max": "0\n"}, "is not held"},
		{"pids", "pids", 20, true, map[string]string{"pids.max": "21\n"}, ""}, // the sandbox's allows for ours
		{"pids, more than ours", "pids", 20, true, map[string]string{"pids.max": "22\n"}, "is not held"},
		{"pids without a limit", "pids", 20, false, map[string]string{"pids.max": "max\n"}, "says that there is no limit"},
		{"cpus", "cpus", 1.5, true, map[string]string{"cpu.max": "150000 100000\n"}, ""},
		{"cpus without a limit", "cpus", 1.5, true, map[string]string{"cpu.max": "max 100000\n"}, "read back"},
		{"cpus, more than asked for", "cpus", 1.5, true, map[string]string{"cpu.max": "200000 100000\n"}, "holds 2"},
		{"cpus, half a line", "cpus", 1.5, true, map[string]string{"cpu.max": "150000"}, "read back"},
		{"cpus of version 1", "cpus", 0.5, false, map[string]string{"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n"}, ""},
		{"cpus of version 1 without a limit", "cpus", 0.5, false, map[string]string{"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, "limits.cpus"},
		{"cpus of version 1 in no time", "cpus", 0.5, false, map[string]string{"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "0\n"}, "cannot be read"},
	} {
		by := spec.ByCgroup1
		if c.unified {
			by = spec.ByCgroup2
		}
		limits := policy.Limits{Memory: 4096, Pids: 20, CPUs: c.value}
		cmd := &forkexec.Command{Limits: forkexec.Limits{
			Memory: limits.Memory, Pids: limits.Pids, SandboxPids: 21,
			Groups: []forkexec.Group{{Dir: groupFiles(t, c.files), Unified: c.unified, Controllers: all}},
		}}
		list := []spec.Limit{{Name: c.limit, Value: c.value, EnforcedBy: by}}
		err := (&enforced{sb: madeUp(Launch{}), cmd: cmd, l: effective{Limits: limits}, made: true}).readBack(list)
		switch {
		case c.fails == "" && (err != nil || !list[0].Verified):
			t.Errorf("%s: %v", c.name, err)
		case c.fails != "" && (codeOf(err) != "limit_unenforceable" || !strings.Contains(err.Error(), c.fails) || list[0].Verified):
			t.Errorf("%s: %v, verified %v, want %q", c.name, err, list[0].Verified, c.fails)
		}
	}
}

// TestReported: a result has the sandbox's limits, with what the exec asked for, and says of each what holds it.
func TestReported(t *testing.T) {
	sb := madeUp(Launch{Exec: spec.Exec{Limits: policy.Limits{Wall: time.Second, CPU: 2 * time.Second}}})
	sb.state.Limits = []spec.Limit{{Name: "wall", Value: 1, EnforcedBy: spec.ByTimer}, {Name: "cpu", Value: 2, EnforcedBy: spec.ByWatcher}}
	report := func(req Request) map[string]spec.Limit {
		t.Helper()
		var cmd forkexec.Command
		l := sb.effective(req)
		sb.limit(&cmd, l, nil)
		list, err := sb.reported(&cmd, l)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]spec.Limit{}
		for _, one := range list {
			if !one.Verified {
				t.Errorf("%+v is not verified", one)
			}
			got[one.Name] = one
		}
		return got
	}
	if got := report(Request{}); len(got) != 2 || got["wall"].Value != 1 {
		t.Errorf("%+v", got)
	}
	got := report(Request{Timeout: 500 * time.Millisecond, Memory: 1 << 20})
	if len(got) != 3 || got["wall"].Value != 0.5 || got["cpu"].Value != 2 || got["memory"].Value != 1<<20 || got["memory"].EnforcedBy != spec.ByWatcher {
		t.Errorf("%+v", got)
	}
	if sb.state.Limits[0].Value != 1 || sb.state.Limits[0].Verified {
		t.Errorf("the sandbox's own were changed: %+v", sb.state.Limits)
	}
	// Nothing holds what the command lacks.
	if list, err := sb.reported(&forkexec.Command{}, sb.effective(Request{})); codeOf(err) != "limit_unenforceable" {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestNotedGroups: each control group is noted before it is made, and the note is what a removal goes by.
func TestNotedGroups(t *testing.T) {
	s := newStore(t)
	deadSandbox(t, s, "x", nil)
	sb := &Sandbox{store: s, state: &State{ID: "x"}}
	for _, path := range []string{"/sys/fs/cgroup/sandboxrun-0-a", "/sys/fs/cgroup/sandboxrun-0-b"} {
		if err := sb.noteGroup(path); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := s.root.ReadFile("x/" + groupsFile); err != nil || string(data) != "/sys/fs/cgroup/sandboxrun-0-a\n/sys/fs/cgroup/sandboxrun-0-b\n" {
		t.Errorf("%q, %v", data, err)
	}
	if err := (&Sandbox{store: s, state: &State{ID: "gone"}}).noteGroup("/x"); codeOf(err) != "state_unusable" {
		t.Errorf("of a directory that is gone: %v", err)
	}
	if err := reachGroups([]forkexec.Group{{Dir: "/nowhere"}}); err != nil {
		t.Errorf("version 1 needs no nearness: %v", err)
	}
	if _, ok := cgroup.Number(filepath.Join(t.TempDir(), "none"), ""); ok {
		t.Error("a number of nothing")
	}
}

func TestKeptOutput(t *testing.T) {
	if got := keptOutput(policy.Limits{Output: 5}); got != 5 {
		t.Error(got)
	}
	if got := keptOutput(policy.Limits{}); got <= 0 {
		t.Error(got)
	}
}
