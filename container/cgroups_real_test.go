package container

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/spec"
)

// These tests use this machine's own control groups, of whatever kind. scripts/guest-test has machines of other kinds.

// ownCgroups are the groups that can be had here. SANDBOXRUN_REQUIRE=cgroup, or the name of a kind, makes it a failure to
// have none.
func ownCgroups(t testing.TB) spec.Cgroups {
	t.Helper()
	facts := probeCgroups()
	for _, need := range strings.Split(os.Getenv("SANDBOXRUN_REQUIRE"), ",") {
		switch need {
		case "cgroup":
			if facts.Kind == "" {
				t.Fatal("there are none: ", facts.Reason)
			}
		case "cgroup1", "cgroup2", "scope":
			if want := strings.Replace(need, "scope", spec.BySystemd, 1); facts.Kind != want {
				t.Fatalf("want %s: %+v", want, facts)
			}
		}
	}
	if facts.Kind == "" {
		t.Skip("no control groups: ", facts.Reason)
	}
	return facts
}

var cgroupSerial atomic.Int64

// madeGroups is a sandbox's groups with these limits, and a process 1 that does nothing. All is gone after the test.
type madeGroups struct {
	facts spec.Cgroups
	name  string
	dirs  map[string]string
	noted []string
	one   *exec.Cmd
}

func makeForTest(t testing.TB, facts spec.Cgroups, l cgroupLimits) *madeGroups {
	t.Helper()
	g := &madeGroups{facts: facts, name: fmt.Sprintf("sandboxrun-test-%d-%d", os.Getpid(), cgroupSerial.Add(1))}
	g.one = exec.Command("sleep", "1000")
	g.one.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := g.one.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.remove(t) })
	var err error
	g.dirs, err = makeCgroups(facts, g.name, g.one.Process.Pid, l, func(path string) error {
		if filepath.IsAbs(path) && exists(path) && !strings.HasSuffix(path, scopeSuffix) { // a scope's is systemd's to make
			t.Errorf("%s was there before it was noted", path)
		}
		g.noted = append(g.noted, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// remove ends process 1, as a delete does, and removes the groups.
func (g *madeGroups) remove(t testing.TB) {
	t.Helper()
	if g.one == nil {
		return
	}
	_ = g.one.Process.Kill()
	_ = g.one.Wait()
	g.one = nil
	if err := removeNoted(g.noted); err != nil {
		t.Error(err)
	}
	for _, dir := range g.dirs {
		if exists(dir) {
			t.Errorf("%s is left", dir)
		}
	}
	if g.facts.Kind == spec.BySystemd {
		g.unitGone(t)
	}
}

func (g *madeGroups) unitGone(t testing.TB) {
	t.Helper()
	sd, err := dialSystemd(os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	defer sd.close()
	for range 200 {
		if err = sd.call("GetUnit", nil, g.name+scopeSuffix); err != nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !isNamed(err, noSuchUnit) {
		t.Errorf("the scope is left: %v", err)
	}
}

// list are the directories of all controllers, each once.
func (g *madeGroups) list() []string { return slices.Compact(slices.Sorted(maps.Values(g.dirs))) }

// start runs a shell's command line in the group "e<n>" of the sandbox's.
func (g *madeGroups) start(t testing.TB, n int, script string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	name := fmt.Sprintf("e%06d", n)
	for _, dir := range g.list() {
		if err := makeGroup(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := &bytes.Buffer{}
	// It waits until it is where it belongs.
	cmd := exec.Command("/bin/sh", "-c", "read -r go || exit 9; "+script, self)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	wait, release, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer wait.Close()
	defer release.Close()
	cmd.Stdin = wait
	g.startIn(t, cmd, name)
	if _, err := io.WriteString(release, "go\n"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return cmd, out
}

// startIn starts a command in its group: by clone where that is possible.
func (g *madeGroups) startIn(t testing.TB, cmd *exec.Cmd, name string) {
	t.Helper()
	if g.facts.Kind == spec.ByCgroup1 {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for _, dir := range g.list() {
			if err := writeControl(filepath.Join(dir, name, "tasks"), strconv.Itoa(cmd.Process.Pid)); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	dir, err := os.Open(filepath.Join(g.list()[0], name))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	if err := reachCgroup(dir.Name()); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// TestCgroupsHelper is what other tests have this very program do in another process.
func TestCgroupsHelper(t *testing.T) {
	switch what := os.Getenv("SANDBOXRUN_CGROUPS_TEST"); what {
	case "":
		t.Skip("no test of its own")
	case "allocate":
		data := make([]byte, 128<<20)
		for i := 0; i < len(data); i += 4096 {
			data[i] = 1
		}
	default:
		arrangeMounts(t, what)
		out := os.NewFile(3, "facts")
		if err := json.NewEncoder(out).Encode(probeCgroups()); err != nil {
			t.Fatal(err)
		}
	}
}

const allocate = `SANDBOXRUN_CGROUPS_TEST=allocate exec "$0" -test.run='^TestCgroupsHelper$'`

func TestCgroupsLimitMemory(t *testing.T) {
	facts := ownCgroups(t)
	if !slices.Contains(facts.Controllers, "memory") {
		t.Skip("no controller for memory: ", facts.Reason)
	}
	t.Run("control", func(t *testing.T) {
		g := makeForTest(t, facts, cgroupLimits{Memory: 512 << 20})
		cmd, out := g.start(t, 1, allocate)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	g := makeForTest(t, facts, cgroupLimits{Memory: 64 << 20})
	cmd, out := g.start(t, 1, allocate)
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
		g := makeForTest(t, facts, cgroupLimits{Pids: limit})
		cmd, out := g.start(t, 1, spawn)
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
	g := makeForTest(t, facts, cgroupLimits{CPUs: 0.2})
	cmd, _ := g.start(t, 1, "while :; do :; done")
	start := time.Now()
	time.Sleep(time.Second)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	elapsed := time.Since(start)
	stat, err := readControl(filepath.Join(g.dirs["cpu"], "cpu.stat"))
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
	l := cgroupLimits{Memory: 100<<20 + 17, Pids: 33, CPUs: 0.5}
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
			got, err := readControl(path)
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
	g := makeForTest(t, facts, cgroupLimits{Pids: 50})
	if facts.Kind == spec.BySystemd {
		g.noted = g.noted[:1] // it had no time to note the directory
	} else {
		g.noted = append([]string{g.list()[0] + "-never-made"}, g.noted...)
		removeGroups(g.list()[:1])
	}
	g.remove(t)
	if err := removeNoted(g.noted); err != nil {
		t.Error("again: ", err)
	}
}

// A create fails as a whole, and a name that is in use stays with whom it belongs to.
func TestCgroupsFailWithoutTrace(t *testing.T) {
	facts := ownCgroups(t)
	note := func(string) error { return nil }
	g := makeForTest(t, facts, cgroupLimits{Pids: 50})
	g.start(t, 1, "exec sleep 100")
	if facts.Kind != spec.BySystemd { // which would wait for the unit's end
		if _, err := makeCgroups(facts, g.name, g.one.Process.Pid, cgroupLimits{}, note); !errors.Is(err, unix.EEXIST) {
			t.Errorf("a name in use: %v", err)
		}
	}
	if !exists(filepath.Join(g.list()[0], "e000001")) {
		t.Error("somebody else's groups were removed")
	}
	var made []string
	for limit, l := range map[string]cgroupLimits{"pids": {Pids: 1 << 40}, "cpu": {CPUs: 1e-4}} {
		if !slices.Contains(facts.Controllers, limit) || facts.Kind == spec.BySystemd {
			continue
		}
		_, err := makeCgroups(facts, g.name+limit, g.one.Process.Pid, l, func(path string) error {
			made = append(made, path)
			return nil
		})
		if err == nil {
			t.Errorf("an impossible limit of %s was set", limit)
		}
	}
	refuse := errors.New("disk full")
	_, err := makeCgroups(facts, g.name+"x", g.one.Process.Pid, cgroupLimits{}, func(path string) error {
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

func TestCgroupsProbesAtOnce(t *testing.T) {
	facts := ownCgroups(t)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for range 5 {
				if got := probeCgroups(); got.Kind != facts.Kind || !slices.Equal(got.Controllers, facts.Controllers) {
					t.Errorf("%+v, before %+v", got, facts)
				}
			}
		})
	}
	group.Wait()
	for _, dir := range facts.Parents {
		if left, _ := filepath.Glob(filepath.Join(dir, "sandboxrun-probe-*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// probeElsewhere probes in a mount namespace that was changed, or as somebody else.
func probeElsewhere(t *testing.T, what string, attr *syscall.SysProcAttr) spec.Cgroups {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestCgroupsHelper$")
	cmd.Env = append(os.Environ(), "SANDBOXRUN_CGROUPS_TEST="+what)
	cmd.SysProcAttr, cmd.ExtraFiles = attr, []*os.File{w}
	out, err := cmd.CombinedOutput()
	w.Close()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var facts spec.Cgroups
	if err := json.NewDecoder(r).Decode(&facts); err != nil {
		t.Fatal(err)
	}
	return facts
}

// arrangeMounts changes the mounts of control groups, in the helper's own mount namespace.
func arrangeMounts(t *testing.T, what string) {
	t.Helper()
	if what == "as it is" {
		return
	}
	m, err := thisMachine()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	for _, mount := range m.mounts {
		var err error
		switch what {
		case "read-only":
			err = unix.Mount("", mount.point, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
		case "hidden":
			err = unix.Mount("none", mount.point, "tmpfs", 0, "")
		case "own only":
			for _, c := range append(mount.controllers, "") {
				if dir, ok := mount.dir(m.own[c]); ok && mount.v2 == (c == "") {
					err = unix.Mount(dir, mount.point, "", unix.MS_BIND, "")
				}
			}
		}
		if err != nil {
			t.Fatalf("%s: %s: %v", what, mount.point, err)
		}
	}
}

func TestCgroupsNotWritable(t *testing.T) {
	here := ownCgroups(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can change mounts")
	}
	for _, what := range []string{"read-only", "hidden"} {
		facts := probeElsewhere(t, what, &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS})
		if here.Kind == spec.BySystemd && what == "read-only" {
			continue // systemd's are not
		}
		if facts.Kind != "" || len(facts.Controllers) > 0 || facts.Reason == "" || strings.Contains(facts.Reason, "\n") {
			t.Errorf("%s: %+v", what, facts)
		}
		if what == "read-only" && !strings.Contains(facts.Reason, " is not writable") {
			t.Errorf("%s: %q", what, facts.Reason)
		}
	}
}

func TestCgroupsOfSomebodyElse(t *testing.T) {
	ownCgroups(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	const nobody = 65534
	facts := probeElsewhere(t, "as it is", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}})
	if facts.Kind != "" || len(facts.Controllers) > 0 || facts.Reason == "" || strings.Contains(facts.Reason, "\n") {
		t.Errorf("%+v", facts)
	}
}

// Where a container's mounts begin at its own group, the same is found at another path.
func TestCgroupsMountedInPart(t *testing.T) {
	here := ownCgroups(t)
	if os.Geteuid() != 0 || here.Kind != spec.ByCgroup1 {
		t.Skip("only root can change mounts, and only in version 1 does a group with processes have others: ", here.Kind)
	}
	facts := probeElsewhere(t, "own only", &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS})
	if facts.Kind != here.Kind || !slices.Equal(facts.Controllers, here.Controllers) {
		t.Errorf("%+v, before %+v", facts, here)
	}
	m, err := thisMachine()
	if err != nil {
		t.Fatal(err)
	}
	for c, dir := range facts.Parents {
		if !slices.ContainsFunc(m.mounts, func(m cgroupMount) bool { return m.point == dir }) {
			t.Errorf("%s: %s is not where it is mounted", c, dir)
		}
	}
}

// On version 1 a group cannot have a larger share than those above it have.
func TestCgroupsBelowALimitOfCPU(t *testing.T) {
	facts := ownCgroups(t)
	if facts.Kind != spec.ByCgroup1 || facts.Parents["cpu"] == "" {
		t.Skip("no control groups of version 1 for CPU time: ", facts.Kind)
	}
	outer := makeForTest(t, facts, cgroupLimits{CPUs: 0.3})
	inner := filepath.Join(outer.dirs["cpu"], "e000001")
	if err := makeGroup(inner); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		cpus float64
		want string
	}{{0.2, "20000"}, {2, "30000"}, {0.3, "30000"}} {
		if err := setLegacy(inner, "cpu", cgroupLimits{CPUs: tt.cpus}); err != nil {
			t.Error(err)
		}
		if got, err := readControl(filepath.Join(inner, "cpu.cfs_quota_us")); got != tt.want {
			t.Errorf("%v: %s %v, want %s", tt.cpus, got, err, tt.want)
		}
	}
}

func BenchmarkCgroupsProbe(b *testing.B) {
	ownCgroups(b)
	for b.Loop() {
		probeCgroups()
	}
}

func BenchmarkCgroupsMake(b *testing.B) {
	facts := ownCgroups(b)
	if facts.Kind == spec.BySystemd {
		b.Skip("each needs a process of its own")
	}
	for b.Loop() {
		var noted []string
		note := func(path string) error {
			noted = append(noted, path)
			return nil
		}
		_, err := makeCgroups(facts, "sandboxrun-bench", os.Getpid(), cgroupLimits{Memory: 1 << 30, Pids: 100, CPUs: 1}, note)
		if err != nil {
			b.Fatal(err)
		}
		if err := removeNoted(noted); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCgroupsScope(b *testing.B) {
	facts := ownCgroups(b)
	if facts.Kind != spec.BySystemd {
		b.Skip("no scopes: ", facts.Kind)
	}
	for b.Loop() {
		makeForTest(b, facts, cgroupLimits{Memory: 1 << 30, Pids: 100, CPUs: 1}).remove(b)
	}
}

// Whoever is in a login session has to move before he can reach a scope, once.
func TestCgroupsReach(t *testing.T) {
	facts := ownCgroups(t)
	if facts.Kind == spec.ByCgroup1 {
		t.Skip("version 1 knows no such rule")
	}
	g := makeForTest(t, facts, cgroupLimits{})
	for range 2 {
		if err := reachCgroup(g.list()[0]); err != nil {
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
