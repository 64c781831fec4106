package container

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/enforce"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// madeUp is a sandbox that does not exist, with such a launch.
func madeUp(l Launch) *Sandbox { return &Sandbox{state: &State{ID: "x", Launch: l}} }

// TestEffectiveLimits: an exec may ask for less than its sandbox has, and never for more.
func TestEffectiveLimits(t *testing.T) {
	both := Enforcement{Groups: []forkexec.Group{{Dir: "/g", Controllers: forkexec.GroupMemory | forkexec.GroupPids}}}
	asked := policy.Limits{Wall: 10 * time.Second, CPU: 20 * time.Second, Memory: 1000, Pids: 50}
	for _, c := range []struct {
		name string
		l    Launch
		req  Request
		want enforce.Limits
	}{
		{"nothing", Launch{}, Request{}, enforce.Limits{}},
		{
			"in groups", Launch{Exec: spec.Exec{Limits: asked}, Held: both}, Request{}, enforce.Limits{Limits: asked},
		},
		{
			"watched",
			Launch{Exec: spec.Exec{Limits: asked}},
			Request{},
			enforce.Limits{Limits: asked, WatchMemory: true, WatchPids: true},
		},
		{
			"by rlimit",
			Launch{Exec: spec.Exec{Limits: asked}, Nproc: true},
			Request{},
			enforce.Limits{Limits: asked, WatchMemory: true, Nproc: true},
		},
		{
			"less",
			Launch{Exec: spec.Exec{Limits: asked}, Held: both},
			Request{Memory: 10, Pids: 5},
			enforce.Limits{Limits: policy.Limits{Wall: asked.Wall, CPU: asked.CPU, Memory: 10, Pids: 5}},
		},
		{"more", Launch{Exec: spec.Exec{Limits: asked}, Held: both}, Request{Memory: 1 << 40, Pids: 1 << 20}, enforce.Limits{Limits: asked}},
		{
			"less time",
			Launch{Exec: spec.Exec{Limits: asked}, Held: both},
			Request{Timeout: 5 * time.Second},
			enforce.Limits{Limits: policy.Limits{Wall: 5 * time.Second, CPU: asked.CPU, Memory: 1000, Pids: 50}},
		},
		{
			"less time, which processor time follows",
			Launch{Exec: spec.Exec{Limits: asked, CPUFollowsWall: true}, Held: both},
			Request{Timeout: 5 * time.Second},
			enforce.Limits{Limits: policy.Limits{Wall: 5 * time.Second, CPU: 10 * time.Second, Memory: 1000, Pids: 50}, CPUFollows: true},
		},
		{
			"of an exec alone, in a sandbox without",
			Launch{Nproc: true},
			Request{Memory: 7, Pids: 3},
			enforce.Limits{Limits: policy.Limits{Memory: 7, Pids: 3}, WatchMemory: true, Nproc: true},
		},
	} {
		if got := madeUp(c.l).effective(c.req); got != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

// TestLimitOfACommand: what an exec's command says of its limits, and that no file is left where a program crashes.
func TestLimitOfACommand(t *testing.T) {
	l := Launch{
		Exec: spec.Exec{Limits: policy.Limits{Pids: 10, Memory: 100}},
		Held: Enforcement{Ours: 1, CPUs: []int{0, 3}, Tmpfs: []string{"/tmp"}, Groups: []forkexec.Group{{Dir: "/g", Controllers: forkexec.GroupPids}}},
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
}

func TestKeptOutput(t *testing.T) {
	if got := outputLimit(policy.Limits{Output: 5}); got != 5 {
		t.Error(got)
	}
	if got := outputLimit(policy.Limits{}); got <= 0 {
		t.Error(got)
	}
}
