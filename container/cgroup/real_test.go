package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/spec"
)

func TestCgroupsLimitMemory(t *testing.T) {
	facts := ownCgroups(t)
	if !slices.Contains(facts.Controllers, "memory") {
		t.Skip("no controller for memory: ", facts.Reason)
	}
	t.Run("control", func(t *testing.T) {
		g := makeForTest(t, facts, Limits{Memory: 512 << 20})
		cmd, out := g.start(t, allocate)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	g := makeForTest(t, facts, Limits{Memory: 64 << 20})
	cmd, out := g.start(t, allocate)
	err := cmd.Wait()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Errorf("twice the memory was had: %v: %s", err, out)
	}
	if g.facts.Kind == spec.BySystemd {
		time.Sleep(200 * time.Millisecond) // what does systemd do when it hears of it?
	}
	if err := g.one.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("process 1 has ended with it: %v", err)
	}
	g.remove(t)
}

// Processes that are left are killed when the groups are removed.
func TestCgroupsLimitPidsAndAreEmptied(t *testing.T) {
	facts := ownCgroups(t)
	if !slices.Contains(facts.Controllers, "pids") {
		t.Skip("no controller for pids: ", facts.Reason)
	}
	const spawn = `exec <&- >&- 2>&-; i=0; while [ $i -lt 20 ]; do sleep 500 & i=$((i+1)); done; exit 7`
	for _, limit := range []int64{12, 40} {
		g := makeForTest(t, facts, Limits{Pids: limit})
		cmd, out := g.start(t, spawn)
		err := cmd.Wait()
		want := 7
		if limit == 12 {
			want = 2 // the shell's own, when it cannot fork
		}
		var e *exec.ExitError
		if !errors.As(err, &e) || e.ExitCode() != want {
			t.Errorf("limit %d: %v: %s", limit, err, out)
		}
		if left, err := readWords(filepath.Join(g.dirs["pids"], "e000001", "cgroup.procs")); len(left) == 0 {
			t.Errorf("limit %d: nothing is left to kill: %v", limit, err)
		}
		g.remove(t) // which it cannot without killing them
	}
}

func TestCgroupsLimitCPU(t *testing.T) {
	facts := ownCgroups(t)
	if !slices.Contains(facts.Controllers, "cpu") {
		t.Skip("no controller for CPU time: ", facts.Reason)
	}
	g := makeForTest(t, facts, Limits{CPUs: 0.2})
	cmd, _ := g.start(t, "while :; do :; done")
	start := time.Now()
	time.Sleep(time.Second)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	elapsed := time.Since(start)
	stat, err := ReadControl(filepath.Join(g.dirs["cpu"], "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if used > elapsed/2 || strings.Contains(stat, "nr_throttled 0") || !strings.Contains(stat, "nr_throttled") {
		t.Errorf("used %s of %s:\n%s", used, elapsed, stat)
	}
}

// The limits are what the files say, and all of one hierarchy hold for one directory.
func TestCgroupsReadBack(t *testing.T) {
	facts := ownCgroups(t)
	l := Limits{Memory: 100<<20 + 17, Pids: 33, CPUs: 0.5}
	g := makeForTest(t, facts, l)
	want := map[string]map[string]string{
		"memory": {"memory.max": "104857600", "memory.swap.max": "0"},
		"pids":   {"pids.max": "33"}, "cpu": {"cpu.max": "50000 100000"},
	}
	if facts.Kind == spec.ByCgroup1 {
		want = map[string]map[string]string{
			"memory": {"memory.limit_in_bytes": "104857600", "memory.memsw.limit_in_bytes": "104857600"},
			"pids":   {"pids.max": "33"}, "cpu": {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"},
		}
	}
	for _, c := range facts.Controllers {
		if filepath.Base(g.dirs[c]) != g.name && filepath.Base(g.dirs[c]) != g.name+scopeSuffix {
			t.Errorf("%s: %s", c, g.dirs[c])
		}
		if !slices.Contains(g.noted, g.dirs[c]) {
			t.Errorf("%s was not noted", g.dirs[c])
		}
		for file, value := range want[c] {
			path := filepath.Join(g.dirs[c], file)
			got, err := ReadControl(path)
			if strings.Contains(file, "sw") && errors.Is(err, unix.ENOENT) {
				continue
			}
			if err != nil || got != value {
				t.Errorf("%s: %q %v, want %q", path, got, err, value)
			}
		}
	}
	if len(g.dirs) != len(facts.Controllers) {
		t.Errorf("%v for %v", g.dirs, facts.Controllers)
	}
}

// A creator that died has noted more, or other things, than there are.
func TestCgroupsRemoveWhatIsThere(t *testing.T) {
	facts := ownCgroups(t)
	g := makeForTest(t, facts, Limits{Pids: 50})
	if facts.Kind == spec.BySystemd {
		g.noted = g.noted[:1] // it had no time to note the directory
	} else {
		g.noted = append([]string{g.list()[0] + "-never-made"}, g.noted...)
		removeGroups(g.list()[:1])
	}
	g.remove(t)
	if err := RemoveNoted(g.noted); err != nil {
		t.Error("again: ", err)
	}
}

// A create fails as a whole, and a name that is in use stays with whom it belongs to.
func TestCgroupsFailWithoutTrace(t *testing.T) {
	facts := ownCgroups(t)
	note := func(string) error { return nil }
	g := makeForTest(t, facts, Limits{Pids: 50})
	g.start(t, "exec sleep 100")
	if facts.Kind != spec.BySystemd { // which would wait for the unit's end
		if _, err := Make(facts, g.name, g.one.Process.Pid, Limits{}, note); !errors.Is(err, unix.EEXIST) {
			t.Errorf("a name in use: %v", err)
		}
	}
	if !exists(filepath.Join(g.list()[0], "e000001")) {
		t.Error("somebody else's groups were removed")
	}
	var made []string
	for limit, l := range map[string]Limits{"pids": {Pids: 1 << 40}, "cpu": {CPUs: 1e-4}} {
		if !slices.Contains(facts.Controllers, limit) || facts.Kind == spec.BySystemd {
			continue
		}
		_, err := Make(facts, g.name+limit, g.one.Process.Pid, l, func(path string) error {
			made = append(made, path)
			return nil
		})
		if err == nil {
			t.Errorf("an impossible limit of %s was set", limit)
		}
	}
	refuse := errors.New("disk full")
	_, err := Make(facts, g.name+"x", g.one.Process.Pid, Limits{}, func(path string) error {
		made = append(made, path)
		return refuse
	})
	if !errors.Is(err, refuse) {
		t.Errorf("what cannot be noted was made: %v", err)
	}
	for _, dir := range made {
		if exists(dir) {
			t.Errorf("%s is left", dir)
		}
	}
}

// On version 1 a group cannot have a larger share than those above it have.
func TestCgroupsBelowALimitOfCPU(t *testing.T) {
	facts := ownCgroups(t)
	if facts.Kind != spec.ByCgroup1 || facts.Parents["cpu"] == "" {
		t.Skip("no control groups of version 1 for CPU time: ", facts.Kind)
	}
	outer := makeForTest(t, facts, Limits{CPUs: 0.3})
	inner := filepath.Join(outer.dirs["cpu"], "e000001")
	if err := makeGroup(inner); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		cpus float64
		want string
	}{{0.2, "20000"}, {2, "30000"}, {0.3, "30000"}} {
		if err := setLegacy(inner, "cpu", Limits{CPUs: tt.cpus}); err != nil {
			t.Error(err)
		}
		if got, err := ReadControl(filepath.Join(inner, "cpu.cfs_quota_us")); got != tt.want {
			t.Errorf("%v: %s %v, want %s", tt.cpus, got, err, tt.want)
		}
	}
}

// The next sandbox of a name may be made when removal of the last one has returned.
func TestCgroupsSameNameAgain(t *testing.T) {
	facts := ownCgroups(t)
	for range 4 {
		one := exec.Command("sleep", "1000")
		if err := one.Start(); err != nil {
			t.Fatal(err)
		}
		var noted []string
		name := fmt.Sprintf("sandboxrun-test-%d-again", os.Getpid())
		_, err := Make(facts, name, one.Process.Pid, Limits{Pids: 9}, func(path string) error {
			noted = append(noted, path)
			return nil
		})
		_ = one.Process.Kill()
		_ = one.Wait()
		if err := errors.Join(err, RemoveNoted(noted)); err != nil {
			t.Fatal(err)
		}
	}
}

// Systemd writes its own limits of a scope anew whenever it is told to reload.
func TestCgroupsLimitsOutliveReload(t *testing.T) {
	facts := ownCgroups(t)
	if facts.Kind != spec.BySystemd || os.Geteuid() == 0 {
		t.Skip("not a user's systemd: ", facts.Kind)
	}
	g := makeForTest(t, facts, Limits{Memory: 1 << 30, Pids: 77, CPUs: 0.7})
	sd, err := dialSystemd(os.Geteuid(), jobTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer sd.close()
	if err := sd.call("Reload", nil); err != nil {
		t.Fatal(err)
	}
	g.start(t, "exec sleep 100") // gives it time, and finds controllers
	for file, want := range map[string]string{
		"memory.max": "1073741824", "memory.swap.max": "0", "pids.max": "77", "cpu.max": "70000 100000",
		"cgroup.subtree_control": "cpu memory pids", "e000001/pids.max": "max",
	} {
		got, err := ReadControl(filepath.Join(g.list()[0], file))
		if strings.Contains(file, "swap") && errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil || got != want {
			t.Errorf("%s: %q %v, want %q", file, got, err, want)
		}
	}
}

// Whoever is in a login session has to move before he can reach a scope, once.
func TestCgroupsReach(t *testing.T) {
	facts := ownCgroups(t)
	if facts.Kind == spec.ByCgroup1 {
		t.Skip("version 1 knows no such rule")
	}
	g := makeForTest(t, facts, Limits{})
	for range 2 {
		if err := Reach(g.list()[0]); err != nil {
			t.Fatal(err)
		}
		m, err := thisMachine()
		if err != nil {
			t.Fatal(err)
		}
		mount, own, err := m.unified()
		if err != nil || !reachable(own, g.list()[0], mount.point) {
			t.Errorf("%s cannot be reached from %s: %v", g.list()[0], own, err)
		}
	}
}
