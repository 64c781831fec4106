package stats

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// fakeGroups makes files as control groups have them.
func fakeGroups(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestByGroups(t *testing.T) {
	const all = forkexec.GroupMemory | forkexec.GroupPids | forkexec.GroupCPUAcct
	want := used{execs: 2, memory: 900, tasks: 7, cpu: 5 * time.Second, busy: 60 * time.Second}
	unified := fakeGroups(t, map[string]string{
		"memory.current": "1000\n", "memory.stat": "anon 5\ninactive_anon 7\ninactive_file 100\nactive_file 3\n",
		"pids.current": "30\n", "cpu.stat": "usage_usec 60000000\nuser_usec 1\n",
		"e000001/cgroup.procs": "7\n", "e000001/pids.current": "3\n", "e000001/cpu.stat": "usage_usec 1000000\n",
		"e000012/cgroup.procs": "8\n9\n", "e000012/pids.current": "6\n", "e000012/cpu.stat": "usage_usec 4000000\n",
		// One that was left behind, and what is no exec's.
		"e000013/cgroup.procs": "", "e000013/pids.current": "0\n", "e000013/cpu.stat": "usage_usec 9000000\n",
		"init/cgroup.procs": "1\n", "init/pids.current": "1\n", "exe/cgroup.procs": "1\n",
	})
	if u, counted := byGroups([]forkexec.Group{{Dir: unified, Unified: true, Controllers: all}}); u != want || counted != all {
		t.Errorf("version 2: %+v %b", u, counted)
	}
	memory := fakeGroups(t, map[string]string{
		"memory.usage_in_bytes": "1000\n", "memory.stat": "inactive_file 5\ntotal_inactive_file 100\n",
		"e000001/cgroup.procs": "7\n", "e000012/cgroup.procs": "7\n",
	})
	pids := fakeGroups(t, map[string]string{
		"pids.current": "30\n", "e000001/pids.current": "3\n", "e000012/pids.current": "6\n",
		"e000001/cgroup.procs": "7\n", "e000012/cgroup.procs": "7\n",
	})
	cpu := fakeGroups(t, map[string]string{"cpu.cfs_quota_us": "1\n"})
	acct := fakeGroups(t, map[string]string{
		"cpuacct.usage": "60000000000\n", "e000001/cpuacct.usage": "1000000000\n", "e000012/cpuacct.usage": "4000000000\n",
		"e000001/cgroup.procs": "7\n", "e000012/cgroup.procs": "7\n",
	})
	groups := []forkexec.Group{
		{Dir: memory, Controllers: forkexec.GroupMemory},
		{Dir: pids, Controllers: forkexec.GroupPids},
		{Dir: cpu, Controllers: forkexec.GroupCPU},
		{Dir: acct, Controllers: forkexec.GroupCPUAcct},
	}
	if u, counted := byGroups(groups); u != want || counted != all {
		t.Errorf("version 1: %+v %b", u, counted)
	}
	if u, counted := byGroups(groups[:3]); counted != forkexec.GroupMemory|forkexec.GroupPids || u.tasks != 7 || u.cpu != 0 {
		t.Errorf("not all: %+v %b", u, counted)
	}
	if err := os.Remove(filepath.Join(pids, "e000012", "pids.current")); err != nil {
		t.Fatal(err)
	}
	if _, counted := byGroups(groups); counted != forkexec.GroupMemory|forkexec.GroupCPUAcct {
		t.Errorf("one does not count: %b", counted)
	}
	if _, counted := byGroups([]forkexec.Group{{Dir: "/no/such", Unified: true, Controllers: all}}); counted != 0 {
		t.Errorf("gone: %b", counted)
	}
}

func TestEachExec(t *testing.T) {
	list := eachExec([]spec.Limit{
		{Name: "cpu", EnforcedBy: spec.ByWatcher},
		{Name: "disk", EnforcedBy: spec.ByWatcher},
		{Name: "pids", EnforcedBy: spec.ByCgroup1},
		{Name: "memory", EnforcedBy: spec.ByWatcher},
	})
	if fmt.Sprint(list) != "[cpu memory]" {
		t.Error(list)
	}
}
