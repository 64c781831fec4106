package enforce

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// A limit that nothing holds, by a name or by a way that nobody knows, is an error and never reported as verified.
func TestMadeUpLimit(t *testing.T) {
	e := &Exec{Command: &forkexec.Command{Limits: forkexec.Limits{Wall: time.Second}}}
	for _, l := range []spec.Limit{
		{Name: "made_up", Value: 1, EnforcedBy: spec.ByWatcher, Verified: true},
		{Name: "wall", Value: 1, EnforcedBy: spec.ByRlimit, Verified: true},
		{Name: "wall", Value: 0.5, EnforcedBy: spec.ByTimer, Verified: true},
		{Name: "idle", Value: 1, EnforcedBy: spec.ByTimer, Verified: true},
		{Name: "memory", Value: 1 << 20, EnforcedBy: spec.ByWatcher, Verified: true},
		{Name: "memory", Value: 1 << 20, EnforcedBy: spec.ByCgroup1, Verified: true},
		{Name: "nofile", Value: 10, EnforcedBy: spec.ByRlimit, Verified: true},
		{Name: "cpus", Value: 1, EnforcedBy: spec.ByAffinity, Verified: true},
		{Name: "disk", Value: 1, EnforcedBy: spec.ByWatcher, Verified: true},
	} {
		list := []spec.Limit{l}
		if err := e.ReadBack(list); err == nil || list[0].Verified {
			t.Errorf("%+v: %v", l, err)
		}
	}
	list := []spec.Limit{{Name: "wall", Value: 1, EnforcedBy: spec.ByTimer}}
	if err := e.ReadBack(list); err != nil || !list[0].Verified {
		t.Errorf("%+v: %v", list, err)
	}
}

// Every limit that a policy can ask for has a row.
func TestEveryLimitHasAnEnforcement(t *testing.T) {
	names := map[string]bool{}
	for _, e := range enforcements() {
		names[e.name] = true
	}
	for f := range reflect.TypeFor[policy.Limits]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !names[name] {
			t.Errorf("nothing enforces limits.%s", name)
		}
	}
}

func unenforceable(err error) bool {
	e, ok := errors.AsType[*fault.Error](err)
	return ok && e.Code == fault.LimitUnenforceable
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
		err := (&Exec{Command: cmd, Limits: Limits{Limits: limits}, Made: true}).ReadBack(list)
		switch {
		case c.fails == "" && (err != nil || !list[0].Verified):
			t.Errorf("%s: %v", c.name, err)
		case c.fails != "" && (!unenforceable(err) || !strings.Contains(err.Error(), c.fails) || list[0].Verified):
			t.Errorf("%s: %v, verified %v, want %q", c.name, err, list[0].Verified, c.fails)
		}
	}
}
