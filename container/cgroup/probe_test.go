package cgroup

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/spec"
)

func TestCgroupsProbesAtOnce(t *testing.T) {
	facts := ownCgroups(t)
	for _, dir := range facts.Parents { // one was killed
		left := filepath.Join(dir, fmt.Sprintf("sandboxrun-probe-%d-0", os.Geteuid()))
		if err := unix.Mkdir(left, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			t.Fatal(err)
		}
	}
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for range 20 {
				if got := Probe(); got.Kind != facts.Kind || !slices.Equal(got.Controllers, facts.Controllers) {
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
	ownCgroups(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can change mounts")
	}
	for _, what := range []string{"read-only", "hidden"} {
		facts := probeElsewhere(t, what, &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS})
		if what == "read-only" && facts.Kind == spec.BySystemd {
			continue // Systemd's own are not
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
		if !slices.ContainsFunc(m.mounts, func(m mountedAt) bool { return m.point == dir }) {
			t.Errorf("%s: %s is not where it is mounted", c, dir)
		}
	}
}

func BenchmarkCgroupsProbe(b *testing.B) {
	ownCgroups(b)
	for b.Loop() {
		Probe()
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
		_, err := Make(facts, "sandboxrun-bench", os.Getpid(), Limits{Memory: 1 << 30, Pids: 100, CPUs: 1}, note)
		if err != nil {
			b.Fatal(err)
		}
		if err := RemoveNoted(noted); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCgroupsScope(b *testing.B) {
	facts := ownCgroups(b)
	if facts.Kind != spec.BySystemd {
		b.Skip("no scopes: ", facts.Kind)
	}
	var removal time.Duration
	for b.Loop() {
		g := makeForTest(b, facts, Limits{Memory: 1 << 30, Pids: 100, CPUs: 1})
		_ = g.one.Process.Kill()
		_ = g.one.Wait()
		g.one = nil
		start := time.Now()
		if err := RemoveNoted(g.noted); err != nil {
			b.Error(err)
		}
		removal += time.Since(start)
	}
	b.ReportMetric(float64(removal.Nanoseconds())/float64(b.N), "ns-removal/op")
}
