package integration

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/machine"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/stream"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// census is everything that could be left behind.
type census struct {
	processes, mounts, hostMounts, cgroups, files, descriptors, goroutines int
}

// count counts what there is now, of what belongs to a state directory. Other tests may run beside this one: they have
// state directories of their own.
func (b *box) count() census {
	lines := func(path string) int {
		data, _ := os.ReadFile(path)
		return strings.Count(string(data), b.state)
	}
	c := census{
		processes: b.processes(), mounts: lines("/proc/self/mountinfo"), hostMounts: lines("/proc/1/mountinfo"),
		cgroups: b.cgroups(), goroutines: runtime.NumGoroutine(),
	}
	_ = filepath.WalkDir(b.state, func(_ string, _ fs.DirEntry, err error) error {
		if err == nil {
			c.files++
		}
		return nil
	})
	fds, _ := os.ReadDir("/proc/self/fd")
	c.descriptors = len(fds)
	return c
}

// processes counts children of this process, processes that hold a lock below the state directory, as process 1 of each sandbox does,
// and those that have a launcher's environment: its helpers share its memory.
func (b *box) processes() int {
	entries, _ := os.ReadDir("/proc")
	n := 0
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil || e.Name() == strconv.Itoa(os.Getpid()) {
			continue
		}
		stat, _ := os.ReadFile("/proc/" + e.Name() + "/stat")
		if _, rest, ok := strings.Cut(string(stat), ") "); ok {
			if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(os.Getpid()) {
				n++
				continue
			}
		}
		if env, _ := os.ReadFile("/proc/" + e.Name() + "/environ"); strings.Contains(string(env), "SANDBOXRUN_ROOT="+b.state+"\x00") {
			n++
			continue
		}
		fds, _ := filepath.Glob("/proc/" + e.Name() + "/fd/*")
		for _, fd := range fds {
			if to, _ := os.Readlink(fd); strings.HasPrefix(to, b.state+"/") {
				n++
				break
			}
		}
	}
	return n
}

// learnCgroups finds out from a living sandbox how the cgroups of this state directory are called: others on the machine
// have sandboxes too.
func (b *box) learnCgroups(id string) {
	b.t.Helper()
	var state struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(b.run("state", id).exits(0).stdout), &state); err != nil {
		b.t.Fatal(err)
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", state.PID))
	if err != nil {
		b.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if name, ours := strings.CutSuffix(filepath.Base(strings.TrimSpace(line)), "-"+id); ours {
			b.cgroup = name
		}
	}
	if b.cgroup == "" {
		b.t.Log("this machine gives sandboxes no cgroups")
	}
}

// cgroups counts the cgroups of the box.
func (b *box) cgroups() int {
	if b.cgroup == "" {
		return 0
	}
	n := 0
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fs.SkipDir
		case d.IsDir() && strings.HasPrefix(d.Name(), b.cgroup):
			n++
			return fs.SkipDir
		}
		return nil
	})
	return n
}

// settles waits until there is no more than before: the kernel takes a moment to let go of things.
func (b *box) settles(what string, before census) {
	b.t.Helper()
	var now census
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		runtime.GC() // forgotten files are closed by it; what depends on that is still found below, by the thousands
		if now = b.count(); now == before {
			return
		}
		if now.processes <= before.processes && now.mounts <= before.mounts && now.hostMounts <= before.hostMounts &&
			now.cgroups <= before.cgroups && now.files <= before.files && now.descriptors <= before.descriptors &&
			now.goroutines <= before.goroutines {
			return
		}
	}
	b.t.Errorf("%s: more is there than before\nbefore %+v\nafter  %+v", what, before, now)
}

// plan resolves a policy as the command does.
func (b *box) plan(name string) *spec.Plan {
	b.t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		b.t.Fatal(err)
	}
	p, err := policy.Load(policy.Input{Name: name, Data: data, Dir: b.dir, Cwd: b.dir, Home: b.dir})
	if err != nil {
		b.t.Fatal(err)
	}
	host, err := machine.Probe(policy.Limits{})
	if err != nil {
		b.t.Fatal(err)
	}
	plan, err := spec.Resolve(p, host)
	if err != nil {
		b.t.Fatal(err)
	}
	return plan
}

// open opens the box's state as a program does that uses the library.
func (b *box) open() *container.Store {
	b.t.Helper()
	store, err := container.OpenStore(b.state)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(store.Close)
	return store
}

// exec1 runs one program by the library, and compares its exit code.
func exec1(t *testing.T, sb *container.Sandbox, want int, args ...string) {
	t.Helper()
	run, err := sb.Start(container.Request{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	res, err := run.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if res.ExitCode != want {
		t.Fatalf("%q: exit code %d, want %d: %+v", args, res.ExitCode, want, res)
	}
}

// TestExecsLeaveNothing: thousands of execs in one sandbox, of programs that end in every way.
func TestExecsLeaveNothing(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		n := 2000
		if testing.Short() {
			n = 200
		}
		p := b.policy(object{"workspace": object{"source": "tmpfs", "lifetime": "exec"}})
		store := b.open()
		sb, err := store.Create("many", b.plan(p), container.Options{Owner: &owner.Owner{PID: os.Getpid()}})
		if err != nil {
			t.Fatal(err)
		}
		one := func(i int) {
			switch {
			case i%100 == 98:
				exec1(t, sb, 137, "sh", "-c", "sleep 100 & kill -9 $$")
			case i%100 == 99:
				if run, err := sb.Start(container.Request{Args: []string{"no-such-program"}}); err == nil {
					t.Fatalf("started %v", run)
				}
			case i%50 == 49:
				run, err := sb.Start(container.Request{Args: []string{"sleep", "100"}, Timeout: 30 * time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				if res, err := run.Wait(); err != nil || !res.TimedOut {
					t.Fatalf("%+v, %v", res, err)
				}
			case i%50 == 48:
				run, err := sb.Start(container.Request{Args: []string{"sh", "-c", "echo to a terminal"}, Tty: &stream.Size{Rows: 9, Cols: 9}})
				if err != nil {
					t.Fatal(err)
				}
				if res, err := run.Wait(); err != nil || !strings.Contains(res.Stdout, "to a terminal") {
					t.Fatalf("%+v, %v", res, err)
				}
			default:
				exec1(t, sb, 0, "/bin/true")
			}
		}
		for i := range 100 {
			one(i)
		}
		b.learnCgroups("many")
		before := b.count()
		start := time.Now()
		for i := range n {
			one(i)
		}
		t.Logf("%d execs in %v", n, time.Since(start).Round(time.Millisecond))
		b.settles(fmt.Sprintf("%d execs", n), before)
		if err := sb.Delete(nil); err != nil {
			t.Fatal(err)
		}
	})
}

// TestCreatesLeaveNothing: hundreds of sandboxes made and deleted one after the other, some of which fail.
func TestCreatesLeaveNothing(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		n := 200
		if testing.Short() {
			n = 20
		}
		plan := b.plan(b.policy(object{"files": object{"write": []string{b.mkdir("ws")}}}))
		store := b.open()
		one := func(i int) {
			sb, err := store.Create(fmt.Sprintf("box%d", i%3), plan, container.Options{Owner: &owner.Owner{PID: os.Getpid()}})
			if err != nil {
				t.Fatal(err)
			}
			if i%5 == 0 {
				exec1(t, sb, 0, "true")
			}
			if i%7 == 0 {
				if _, err := store.Create(fmt.Sprintf("box%d", i%3), plan, container.Options{}); err == nil {
					t.Fatal("made a second one")
				}
				if _, err := store.Create("noowner", plan, container.Options{Owner: &owner.Owner{PID: 1 << 29}}); err == nil {
					t.Fatal("made one of no owner")
				}
			}
			if err := sb.Delete(nil); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 5 {
			one(i)
		}
		first, err := store.Create("first", plan, container.Options{})
		if err != nil {
			t.Fatal(err)
		}
		b.learnCgroups("first")
		if err := first.Delete(nil); err != nil {
			t.Fatal(err)
		}
		before := b.count()
		start := time.Now()
		for i := range n {
			one(i)
		}
		t.Logf("%d creates and deletes in %v", n, time.Since(start).Round(time.Millisecond))
		b.settles(fmt.Sprintf("%d creates", n), before)
		same(t, "sandboxes", 0, len(b.ids()))
	})
}
