package cgroup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/spec"
)

// These tests use this machine's own control groups, of whatever kind. scripts/guest-test has machines of other kinds.

// ownCgroups are the groups that can be had here. SANDBOXRUN_REQUIRE=cgroup, or the name of a kind, makes it a failure to
// have none.
func ownCgroups(t testing.TB) spec.Cgroups {
	t.Helper()
	facts := Probe()
	for need := range strings.SplitSeq(os.Getenv("SANDBOXRUN_REQUIRE"), ",") {
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

func makeForTest(t testing.TB, facts spec.Cgroups, l Limits) *madeGroups {
	t.Helper()
	g := &madeGroups{facts: facts, name: fmt.Sprintf("sandboxrun-test-%d-%d", os.Getpid(), cgroupSerial.Add(1))}
	g.one = exec.Command("sleep", "1000")
	g.one.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := g.one.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.remove(t) })
	var err error
	g.dirs, err = Make(facts, g.name, g.one.Process.Pid, l, func(path string) error {
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
	if err := RemoveNoted(g.noted); err != nil {
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
	sd, err := dialSystemd(os.Geteuid(), jobTimeout)
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

// start runs a shell's command line in the group "e000001" of the sandbox's.
func (g *madeGroups) start(t testing.TB, script string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	const name = "e000001"
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
			if err := WriteControl(filepath.Join(dir, name, "tasks"), strconv.Itoa(cmd.Process.Pid)); err != nil {
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
	if err := Reach(dir.Name()); err != nil {
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
		if err := json.NewEncoder(out).Encode(Probe()); err != nil {
			t.Fatal(err)
		}
	}
}

const allocate = `SANDBOXRUN_CGROUPS_TEST=allocate exec "$0" -test.run='^TestCgroupsHelper$'`

// TestNumberOfNothing: a file that is not there says nothing.
func TestNumberOfNothing(t *testing.T) {
	if _, ok := Number(filepath.Join(t.TempDir(), "none"), ""); ok {
		t.Error("a number of nothing")
	}
}
