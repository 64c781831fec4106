package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/result"
)

// envSoak is how long all load tests together go on, at most maxSoak, with larger numbers: see scripts/soak. Without it
// they are shortened.
const (
	envSoak = "SANDBOXRUN_SOAK"
	maxSoak = 10 * time.Minute
)

// soak is that time, or 0. To be called before the flavours: the user's has an environment of its own, and finds the
// time in a file.
func soak(t *testing.T) time.Duration {
	t.Helper()
	file := filepath.Join(w.shared, "soak")
	text := os.Getenv(envSoak)
	if text == "" {
		data, _ := os.ReadFile(file)
		text = string(data)
	} else if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		t.Fatalf("%s=%q: a duration such as 5m", envSoak, text)
	}
	return min(d, maxSoak)
}

// share is the time of one test that goes on for a while: there are three, each in two flavours.
func share(t *testing.T) time.Duration {
	t.Helper()
	return max(soak(t)/6, 800*time.Millisecond)
}

// atOnce does something n times, in so many goroutines.
func atOnce(workers, n int, do func(i int)) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	group.Wait()
}

// forAWhile does something again and again in many goroutines, and says how often it was done. It ends early where the
// test has failed: one failure is enough to read.
func forAWhile(t *testing.T, workers int, d time.Duration, do func(worker int)) int {
	t.Helper()
	var done atomic.Int64
	var group sync.WaitGroup
	end := time.Now().Add(d)
	for worker := range workers {
		group.Go(func() {
			for time.Now().Before(end) && !t.Failed() {
				do(worker)
				done.Add(1)
			}
		})
	}
	group.Wait()
	return int(done.Load())
}

// census0 counts what there is before the first sandbox of a test, when all is there that stays between sandboxes.
func (b *box) census0(policy string) census {
	b.t.Helper()
	b.create("warm", policy)
	b.learnGroups("warm")
	b.run("delete", "warm").exits(0)
	return b.count()
}

// learnGroups finds out how the control groups of this state directory are called, from those that hold a sandbox's
// limits: its process 1 is in none.
func (b *box) learnGroups(id string) {
	data, _ := os.ReadFile(filepath.Join(b.state, id, "cgroups"))
	for line := range strings.Lines(string(data)) {
		if name, ours := strings.CutSuffix(filepath.Base(strings.TrimSpace(line)), "-"+id); ours {
			b.cgroup = name
		}
	}
}

// sandboxes lists what runs.
func (b *box) sandboxes() []container.Info {
	b.t.Helper()
	var list []container.Info
	if err := json.Unmarshal([]byte(b.run("list", "--json").exits(0).stdout), &list); err != nil {
		b.t.Fatal(err)
	}
	return list
}

// TestLoadSandboxes: many sandboxes are alive at once, made, used and deleted in parallel. Each is its own, each is small,
// and nothing is left of them.
func TestLoadSandboxes(t *testing.T) {
	n := 60
	if soak(t) > 0 {
		n = 500
	}
	flavours(t, func(b *box) {
		t := b.t
		policies := []string{b.files("", object{}), b.limits(object{"memory": "64M", "pids": 20})}
		before := b.census0(policies[1])
		start := time.Now()
		lap := func(what string) {
			t.Logf("%d %s in %v", n, what, time.Since(start).Round(time.Millisecond))
			start = time.Now()
		}
		id := func(i int) string { return fmt.Sprintf("box%03d", i) }
		atOnce(8, n, func(i int) { b.run("create", "--policy", policies[i%2], id(i)).exits(0) })
		lap("created")
		list := b.sandboxes()
		same(t, "sandboxes", n, len(list))
		atOnce(8, n, func(i int) {
			token := fmt.Sprintf("%s-%d", id(i), rand.Uint32())
			a := b.run("exec", id(i), "sh", "-c", `echo "$0"; exit "$1"`, token, strconv.Itoa(i%200)).exits(i % 200)
			same(t, "the output of "+id(i), token+"\n", a.stdout)
		})
		lap("used")
		largest := int64(0)
		for _, s := range list {
			largest = max(largest, pss(t, s.PID))
		}
		t.Logf("the largest process 1 has %d KiB", largest>>10)
		same(t, "an idle sandbox has more than 100 KiB", false, largest > 100<<10)
		start = time.Now()
		atOnce(8, n, func(i int) { b.run("delete", id(i)).exits(0) })
		lap("deleted")
		b.settles(fmt.Sprintf("%d sandboxes", n), before)
	})
}

// pss is a process' share of the memory that it has mapped, in bytes.
func pss(t *testing.T, pid int) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	_, rest, found := strings.Cut(string(data), "\nPss:")
	if err != nil || !found {
		t.Fatalf("process %d: %v, %q", pid, err, data)
	}
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// own is what one exec among many says and ends with.
type own struct {
	token  string
	status int
}

func newOwn() own { return own{fmt.Sprintf("token-%d", rand.Uint64()), rand.IntN(200)} }

// program says it and ends with it, and so do its own children before it.
func (o own) program() []string {
	return []string{"sh", "-c", `(exit "$1"); [ $? = "$1" ] && echo "$0"; exit "$1"`, o.token, strconv.Itoa(o.status)}
}

// is compares.
func (o own) is(t *testing.T, status int, output string) {
	t.Helper()
	if status != o.status || output != o.token+"\n" {
		t.Errorf("%+v: got %q and %d", o, output, status)
	}
}

// TestLoadExecs: 32 execs at any time, half of them in one sandbox and half over several, in each form of the command.
// Each has its own output, status and name.
func TestLoadExecs(t *testing.T) {
	d := share(t)
	flavours(t, func(b *box) {
		t := b.t
		p := b.files("", object{})
		before := b.census0(p)
		ids := []string{"box0", "box1", "box2", "box3"}
		for _, id := range ids {
			b.create(id, p)
		}
		var names sync.Map
		n := forAWhile(t, 32, d, func(worker int) {
			id, o := ids[max(0, worker-16)%4], newOwn()
			if way := rand.IntN(3); way < 2 {
				a := b.call(call{env: []string{"SANDBOXRUN_PLAIN_EXEC=" + []string{"on", "off"}[way]}}, append([]string{"exec", id}, o.program()...)...)
				o.is(t, a.status, a.stdout)
				return
			}
			r := b.result(id, o.program()...)
			o.is(t, r.ExitCode, r.Stdout)
			if _, twice := names.LoadOrStore(id+r.Exec, true); twice || r.Sandbox != id {
				t.Errorf("%s %s is the name of two execs, or of one of %s", r.Sandbox, r.Exec, id)
			}
		})
		t.Logf("%d execs in %v", n, d)
		for _, id := range ids {
			same(t, "processes left in "+id, 1, strings.Count(b.run("ps", id).stdout, "\n"))
			b.run("delete", id).exits(0)
		}
		b.settles(fmt.Sprintf("%d execs", n), before)
	})
}

// TestLoadLibrary: the same in one process, by the library: that has no child, no descriptor and no goroutine more in
// the end.
func TestLoadLibrary(t *testing.T) {
	d := share(t)
	flavours(t, func(b *box) {
		t := b.t
		store := b.open()
		var boxes []*container.Sandbox
		for i, p := range []string{b.files("", object{}), b.limits(object{"memory": "256M", "pids": 300, "wall": "60s"}), b.files("", object{})} {
			sb, err := store.Create(fmt.Sprintf("box%d", i), b.plan(p), container.Options{Owner: &owner.Owner{PID: os.Getpid()}})
			if err != nil {
				t.Fatal(err)
			}
			boxes = append(boxes, sb)
		}
		b.learnGroups("box1")
		one := func(worker int) {
			o := newOwn()
			run, err := boxes[max(0, worker-16)%len(boxes)].Start(container.Request{Args: o.program()})
			var res *result.Result
			if err == nil {
				res, err = run.Wait()
			}
			if err != nil {
				t.Error(err)
				return
			}
			o.is(t, res.ExitCode, res.Stdout)
		}
		atOnce(32, 64, one)
		before := b.count()
		before.files += len(boxes) // a file of events that is full makes room for another
		n := forAWhile(t, 32, d, one)
		t.Logf("%d execs in %v", n, d)
		b.settles(fmt.Sprintf("%d execs", n), before)
		for _, sb := range boxes {
			if err := sb.Delete(nil); err != nil {
				t.Error(err)
			}
		}
		same(t, "sandboxes left", 0, len(b.ids()))
	})
}

// room is a place with a file system or a limit of its own, in which calls of the launcher can be made.
type room struct {
	*box
	call call
	root string // what is in its mount namespace, seen from here
}

// newRoom starts a process in namespaces of its own, which it sets up by a script, and enters them at each call. What
// belongs to root needs no user namespace. The process ends with the test, and so do the namespaces.
func (b *box) newRoom(script string, namespaces ...string) *room {
	b.t.Helper()
	line := slices.Concat([]string{"unshare"}, namespaces, []string{"sh", "-c", script + "\necho READY; exec cat"})
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir, cmd.Env, cmd.Stderr = b.dir, b.env, os.Stderr
	in, err := cmd.StdinPipe()
	var out io.Reader
	if err == nil {
		out, err = cmd.StdoutPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	said, _ := bufio.NewReader(out).ReadString('\n')
	need(b.t, "mounts and limits in namespaces of one's own", said == "READY\n")
	enter := []string{"nsenter", "--preserve-credentials", "-t", strconv.Itoa(cmd.Process.Pid)}
	for _, n := range namespaces {
		if n == "-m" || n == "-U" {
			enter = append(enter, n)
		}
	}
	return &room{b, call{wrap: enter}, fmt.Sprintf("/proc/%d/root", cmd.Process.Pid)}
}

// with calls the launcher in the room, behind a command line of others.
func (r *room) with(wrap []string, args ...string) *answer {
	r.t.Helper()
	c := r.call
	c.wrap = slices.Concat(c.wrap, wrap)
	return r.box.call(c, args...)
}

func (r *room) do(args ...string) *answer {
	r.t.Helper()
	return r.with(nil, args...)
}

// disk is a room whose state directory is on a file system of one MiB.
func (b *box) disk() *room {
	b.t.Helper()
	where := b.mkdir("disk")
	namespaces := []string{"-m"}
	if w.uid != 0 {
		namespaces = []string{"-U", "-r", "-m"}
	}
	r := b.newRoom("mount -t tmpfs -o size=1m,mode=700 none "+where+" || exit 1", namespaces...)
	r.call.env = []string{"SANDBOXRUN_ROOT=" + filepath.Join(where, "state")}
	b.state = r.root + filepath.Join(where, "state") // for ids
	return r
}

// fill leaves so many pages of it free.
func (r *room) fill(free int) {
	r.t.Helper()
	f, err := os.OpenFile(filepath.Join(filepath.Dir(r.state), "fill"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	size, _ := f.Seek(0, io.SeekEnd)
	for page := make([]byte, 4096); err == nil; size += int64(len(page)) {
		_, err = f.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		r.t.Fatal(err)
	}
	if err := f.Truncate(size - int64(1+free)*4096); err != nil {
		r.t.Fatal(err)
	}
}

// says is how the launcher must speak of what there is not enough of: in its own words, with a code that leads nobody
// astray, and 125.
func (a *answer) says(codes string, about ...string) {
	a.t.Helper()
	a.exits(125).hides("goroutine")
	if !regexp.MustCompile(`^sandboxrun: (` + codes + `): `).MatchString(a.stderr) {
		a.t.Errorf("want one of %s on stderr: %v", codes, a)
	}
	a.complains(about...)
}

// TestBadTimesFullDisk: where there is no room for its state, no sandbox is made, none is lost, and each can be deleted.
func TestBadTimesFullDisk(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.policy(object{})
		d := b.disk()
		noRoom := func(a *answer) *answer {
			a.says("state_unusable", "no space left on device", "hint: is the disk full?")
			return a.hides("/proc/self/fd")
		}
		made := 0
		for free := 0; made < 2 && free < 100; free++ {
			d.fill(free)
			if a := d.do("create", "-p", p, "box"); a.status != 0 {
				noRoom(a)
				noRoom(d.do("run", "--json", "-p", p, "true")).prints(`"outcome":"not_started"`, `"code":"state_unusable"`)
				same(t, "left", "", strings.Join(b.ids(), " "))
				continue
			}
			// Just so much that it was made: an exec has the less.
			made++
			d.fill(0)
			for _, form := range [][]string{{"exec", "box"}, {"exec", "--json", "box"}, {"exec", "--detach", "box"}} {
				if a := d.do(append(form, "echo", "out")...); a.status != 0 {
					noRoom(a)
				}
			}
			d.do("list").exits(0).prints("box", "running")
			d.do("delete", "box").exits(0)
			same(t, "left", "", strings.Join(b.ids(), " "))
		}
		same(t, "sandboxes were made in the end", 2, made)
	})
}
