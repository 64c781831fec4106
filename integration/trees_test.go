package integration

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/container/result"
)

// grace is how long an end may take in which something has to be killed, on a busy machine.
const grace = 2 * time.Second

// family is a program with processes that would rather stay. $0 is the mark by which each of them can be found: it
// stands in every command line.
type family struct {
	name, script string
	deaf         bool // no SIGINT ends it
}

// families have all of their processes, or go on making them, when the script is through. The last two have as many as
// they may.
var families = []family{
	{"sessions", "setsid sleep $0 & setsid sh -c 'sleep $0 & sleep $0' $0 & ", false},
	{"forks", "(setsid sh -c '(setsid sleep $0 &) & exec sleep $0' $0 &) & sleep 0.1; ", false},
	{"deaf", "trap '' TERM INT HUP QUIT USR1; setsid sleep $0 & sleep $0 & ", true},
	{"stopped", "(sleep $0 & kill -STOP $!; sh -c 'kill -STOP $$; sleep $0' $0) & sleep 0.1; ", false},
	{"silent", "setsid sleep $0 </dev/null >/dev/null 2>&1 & sleep $0 >&- 2>&- & ", false},
	{"many", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do setsid sleep $0 & sleep $0 & done; ", false},
	{"breeders", "for i in 1 2 3 4 5 6; do (while :; do setsid sleep $0 & sleep 0.01; kill -9 $!; done) & done; sleep 0.05; ", false},
}

// clan is a family at work.
type clan struct {
	*box
	family
	mark string
	cmd  *exec.Cmd
	out  lockedBuffer
}

// start starts a family whose program then says READY and does something more. Its launcher has a process group of its own.
func (b *box) start(f family, flags []string, then string) *clan {
	b.t.Helper()
	m := &clan{box: b, family: f, mark: mark()}
	m.cmd = b.command(call{}, append(append([]string{"exec"}, flags...), f.name, "sh", "-c", f.script+"echo READY; "+then, m.mark)...)
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	m.cmd.Stdout, m.cmd.Stderr = &m.out, &m.out
	if err := m.cmd.Start(); err != nil {
		b.t.Error(err)
	}
	return m
}

// ready waits until all of the family is there, as far as can be seen.
func (m *clan) ready() *clan {
	m.t.Helper()
	eventually(m.t, m.name+" are there", func() bool {
		return sleepers(m.mark) > 0 && (strings.Contains(m.out.String(), "READY") || m.cmd.Args[2] == "--json")
	})
	return m
}

// ends waits for the launcher, which must be soon, and by then the family must be gone.
func (m *clan) ends(how string, status int, within time.Duration) {
	m.t.Helper()
	start := time.Now()
	got := statusOf(m.t, m.cmd, m.cmd.Wait())
	if took, left := time.Since(start), processes(m.mark); got != status || took > within || left > 0 {
		m.t.Errorf("%s: %s: status %d after %v, %d processes left: %s", how, m.name, got, took, left, cut(m.out.String()))
	}
}

// eachFamily does something with all families at once, in each form of the command, each in a sandbox of its own.
func eachFamily(do func(f family, form []string), forms ...[]string) {
	var group sync.WaitGroup
	for _, f := range families {
		for _, form := range forms {
			group.Go(func() { do(f, form) })
		}
	}
	group.Wait()
}

// TestTreesDieWhole: however an exec ends, all that it has started ends with it, at once, and nothing else does.
func TestTreesDieWhole(t *testing.T) {
	const wait = "sleep $0 & wait" // a shell that starts something in the foreground may miss a signal
	flavours(t, func(b *box) {
		t := b.t
		p := b.limits(object{"pids": 90})
		for _, f := range families {
			b.create(f.name, p)
		}
		before := b.processes()
		plain, long := []string(nil), []string{"--json"}
		eachFamily(func(f family, form []string) { b.start(f, form, "exit 5").ends("its own end", 5, 2*grace) }, plain)
		eachFamily(func(f family, form []string) { b.start(f, form, wait).ends("a timeout", 124, 2*grace) }, []string{"--timeout", "0.6"}, append(long, "--timeout", "0.6"))
		eachFamily(func(f family, form []string) { b.start(f, form, wait).ready().interrupted() }, plain)
		eachFamily(func(f family, form []string) { b.start(f, form, wait).ready().orphaned() }, plain, long)
		eventually(t, "only the sandboxes are left", func() bool { return b.processes() <= before })
		eachFamily(func(f family, form []string) {
			m := b.start(f, form, wait).ready()
			b.run("delete", f.name).exits(0)
			same(t, f.name+" left after delete", 0, sleepers(m.mark))
			m.ends("delete", 125, grace)
		}, plain)
		same(t, "sandboxes left", 0, len(b.ids()))
	})
}

// interrupted is Ctrl-C: the launcher's process group gets SIGINT, and the launcher passes it on to the program's. One
// that does not want to hear it goes on, as it would without us.
func (m *clan) interrupted() {
	m.t.Helper()
	_ = syscall.Kill(-m.cmd.Process.Pid, syscall.SIGINT)
	if !m.deaf {
		m.ends("Ctrl-C", 128+int(syscall.SIGINT), grace)
		return
	}
	time.Sleep(50 * time.Millisecond)
	if sleepers(m.mark) == 0 {
		m.t.Errorf("SIGINT has ended %s", m.name)
	}
	m.run("kill", m.name, "KILL").exits(0)
	m.ends("kill", 128+int(syscall.SIGKILL), grace)
}

// orphaned is the end of the launcher by SIGKILL. Nobody can wait for the family any more.
func (m *clan) orphaned() {
	m.t.Helper()
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
	start := time.Now()
	eventually(m.t, m.name+" end with their launcher", func() bool { return processes(m.mark) == 0 })
	if took := time.Since(start); took > grace {
		m.t.Errorf("%s end %v after their launcher", m.name, took)
	}
}

// TestTreesOfABomb: a fork bomb ends, by its limit of processes or by the time that it has, with all of its processes.
func TestTreesOfABomb(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "bash")
		b.create("box", b.limits(object{"pids": 40}))
		m := mark()
		a := b.run("exec", "--json", "--timeout", "0.6", "box", "bash", "-c", "for i in 1 2 3; do (while :; do setsid sleep $0 & done) 2>/dev/null & done; sleep $0", m)
		same(b.t, "processes left", 0, processes(m))
		if a.status != 124 && !strings.Contains(a.stdout, `"outcome":"pids_exceeded"`) || a.took > 2*grace {
			b.t.Errorf("after %v: %v", a.took, a)
		}
	})
}

// TestTreesLoseNoOutput: what a program writes just before its end comes out whole, also where others hold its output
// open, where it is ended, and where whoever reads is slow.
func TestTreesLoseNoOutput(t *testing.T) {
	const write = "head -c 299990 /dev/zero | tr '\\0' x; printf 0123456789; "
	flavours(t, func(b *box) {
		b.create("box", b.files("", object{}))
		forms := [][]string{{"exec"}, {"exec", "--timeout", "50"}, {"exec", "--json"}}
		ends := []string{"exit 3", "sleep 7700.5 & exit 3", "kill -9 $$"}
		atOnce(6, 27, func(i int) {
			var wrap []string
			if i%5 == 4 {
				wrap = []string{"bash", "-c", `set -o pipefail; "$@" | (sleep 0.3; cat)`, "bash"}
			}
			a := b.call(call{wrap: wrap}, append(forms[i%3], "box", "sh", "-c", write+ends[i/3%3])...)
			a.exits(map[bool]int{true: 137, false: 3}[i/3%3 == 2])
			r := result.Result{Stdout: a.stdout}
			if i%3 == 2 {
				_ = json.Unmarshal([]byte(a.stdout), &r)
			}
			if len(r.Stdout) != 300_000 || !strings.HasSuffix(r.Stdout, "x0123456789") {
				b.t.Errorf("%d bytes came: %v", len(r.Stdout), a)
			}
		})
		for _, form := range []string{"--pids=99", "--json"} {
			a := b.run("exec", form, "--timeout=0.5", "box", "sh", "-c", write+"sleep 7700.5").exits(124)
			if strings.Count(a.stdout, "x") < 299_990 || !strings.Contains(a.stdout, "x0123456789") {
				b.t.Errorf("at a timeout %d bytes came", len(a.stdout))
			}
		}
	})
}

// TestTreesAreReaped: processes whose parents have gone are nobody's zombies, in an exec and in the sandbox.
func TestTreesAreReaped(t *testing.T) {
	const script = `
i=0; while [ $i -lt 200 ]; do (setsid sh -c 'exit 3' &); i=$((i+1)); done
i=0; while set -- /proc/[0-9]*; [ $i -lt 100 ] && [ $# -gt 2 ]; do sleep 0.02; i=$((i+1)); done
grep -hs '^\(Name\|State\):' /proc/[0-9]*/status >&2
echo $#`
	flavours(t, func(b *box) {
		b.create("box", b.files("", object{}))
		a := b.run("exec", "box", "sh", "-c", script).exits(0)
		if a.stdout != "2\n" { // the reaper and the shell
			b.t.Errorf("what nobody waits for is not reaped: %v", a)
		}
		before := b.processes()
		for i := range 4 {
			cmd := b.command(call{}, "exec", "box", "sh", "-c", script)
			if err := cmd.Start(); err != nil {
				b.t.Fatal(err)
			}
			time.Sleep(time.Duration(i*25) * time.Millisecond)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		eventually(b.t, "those of killed execs are reaped", func() bool {
			return b.processes() <= before && strings.Count(b.run("ps", "box").stdout, "\n") == 1
		})
	})
}

// TestBadTimesDiskFills: what runs when the disk becomes full goes on, and its result is told.
func TestBadTimesDiskFills(t *testing.T) {
	const script = `head -c 300000 /dev/zero | tr '\0' x; touch /tmp/$0; while [ -e /tmp/$0 ]; do sleep 0.02; done; echo end; exit 3`
	flavours(t, func(b *box) {
		t := b.t
		d := b.disk()
		d.do("create", "-p", b.policy(object{}), "box").exits(0)
		name := strings.TrimSpace(d.do("exec", "--detach", "box", "sh", "-c", script, "detached").exits(0).stdout)
		var results [2]*answer
		var group sync.WaitGroup
		group.Go(func() { results[0] = d.do("exec", "--json", "box", "sh", "-c", script, "attached") })
		eventually(t, "both have begun", func() bool { return d.do("exec", "box", "ls", "/tmp/attached", "/tmp/detached").status == 0 })
		d.fill(0)
		d.do("exec", "box", "rm", "/tmp/attached", "/tmp/detached").exits(0)
		group.Wait()
		results[1] = d.do("wait", "--json", "box", name)
		for i, a := range results {
			var r result.Result
			if err := json.Unmarshal([]byte(a.exits(3).stdout), &r); err != nil {
				t.Fatalf("%v: %v", a, err)
			}
			same(t, "bytes", 300004, r.StdoutBytes)
			// What could not be kept is said to be missing.
			if whole := len(r.Stdout) == 300004 && strings.HasSuffix(r.Stdout, "xend\n"); i == 0 && !whole || !whole && !r.StdoutTruncated {
				t.Errorf("%d bytes of output: %v", len(r.Stdout), a)
			}
		}
		d.do("delete", "box").exits(0)
		same(t, "left", "", strings.Join(b.ids(), " "))
	})
}

// group makes a control group of the test's own. The command line that it returns runs another in it, limited so.
func (b *box) group(controller string) func(limit int) []string {
	b.t.Helper()
	dir, file := filepath.Join("/sys/fs/cgroup", controller), map[string]string{"pids": "pids.max", "memory": "memory.limit_in_bytes"}[controller]
	if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil { // version 2
		dir, file = "/sys/fs/cgroup", controller+".max"
	}
	dir = filepath.Join(dir, fmt.Sprintf("sandboxrun-test-%d-%d", os.Getpid(), rand.Uint32()))
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		b.t.Cleanup(func() {
			eventually(b.t, "nothing is in the test's control group", func() bool { return os.Remove(dir) == nil })
		})
		_, err = os.Stat(filepath.Join(dir, file))
	}
	need(b.t, "control groups of "+controller, err == nil)
	return func(limit int) []string {
		return []string{"sh", "-c", `echo "$1" >"$0/$2" && echo $$ >"$0/cgroup.procs" && shift 2 && exec "$@"`, dir, strconv.Itoa(limit), file}
	}
}

// shortage is something that the launcher may have little of.
type shortage struct {
	*room
	limited func(n int) []string // a command line that gives another so much of it
	step    int
	about   string // what must be said of it
}

// felt makes calls with more and more of it, until they work. Each before must say what there is too little of. No living
// sandbox is lost or taken for dead, and none that is half made is left.
func (s shortage) felt() {
	s.t.Helper()
	p := s.policy(object{})
	calls := [][]string{{"create", "-p", p, "new"}, {"exec", "--json", "box", "echo", "out"}, {"exec", "--detach", "box", "true"}, {"delete", "new"}}
	if soak(s.t) > 0 {
		s.step = 1
		calls = append(calls, []string{"run", "-p", p, "true"}, []string{"exec", "box", "true"}, []string{"list"})
	}
	s.do("create", "-p", p, "box").exits(0)
	for _, args := range calls {
		step := s.step
		if args[0] == "delete" {
			step = 1 // whether it can lie depends on one more or less
		}
		for n, worked := min(s.step, 4), 0; worked < 2; n += step {
			if n > 150 {
				s.t.Fatalf("%q does not work with %d", args, n)
			}
			if s.call1(n, args) {
				worked++
			}
		}
	}
	s.do("delete", "box").exits(0)
}

// call1 makes one call and looks at what it has left. It says whether it has worked.
func (s shortage) call1(n int, args []string) bool {
	s.t.Helper()
	deletes, victim := args[0] == "delete", 0
	if deletes {
		s.do("create", "-p", s.policy(object{}), "new").exits(0)
		_, number, _ := strings.Cut(s.do("state", "new").stdout, `"pid":`)
		if _, err := fmt.Sscan(number, &victim); err != nil {
			s.t.Fatal(err)
		}
	}
	a := s.with(s.limited(n), args...)
	worked := a.status == 0
	if !worked {
		a.says("limit_reached|sandbox_unavailable|state_unusable", s.about)
	}
	if worked && deletes && !hasEnded(victim) {
		s.t.Errorf("with %d it says that it has deleted what lives on: %v", n, a)
	}
	if out := s.do("exec", "box", "echo", "alive").stdout; out != "alive\n" {
		s.t.Fatalf("with %d it has ended another sandbox: %v", n, a)
	}
	if deletes && !worked || worked && args[0] == "create" {
		s.do("delete", "new").exits(0)
	}
	eventually(s.t, "nothing else is there once dead ones are swept", func() bool {
		return s.do("sweep").status == 0 && strings.Join(s.ids(), " ") == "box"
	})
	return worked
}

// hasEnded says whether a process runs no more. Nobody may have waited for it yet.
func hasEnded(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(data), ") Z ")
}

// TestBadTimesNoProcesses: the launcher may have few processes and threads.
func TestBadTimesNoProcesses(t *testing.T) {
	soak(t)
	flavours(t, func(b *box) {
		if w.uid == 0 {
			shortage{&room{box: b}, b.group("pids"), 4, "process"}.felt()
			return
		}
		limited := func(n int) []string { return []string{"prlimit", fmt.Sprintf("--nproc=%d", n)} }
		shortage{b.newRoom("", "-U", "-c"), limited, 4, "process"}.felt() // in its user namespace nobody else counts
	})
}

// TestBadTimesNoFiles: the launcher may open few files.
func TestBadTimesNoFiles(t *testing.T) {
	soak(t)
	flavours(t, func(b *box) {
		limited := func(n int) []string { return []string{"prlimit", fmt.Sprintf("--nofile=%d", n)} }
		shortage{&room{box: b}, limited, 4, "open files"}.felt()
	})
}

// TestBadTimesNoMemory: a launcher that gets no memory any more ends, and its exec with it. The sandbox stays.
func TestBadTimesNoMemory(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		limited := func(mib int) []string { return []string{"prlimit", fmt.Sprintf("--as=%d", mib<<20)} }
		sizes := []int{40, 600, 1000, 1100, 4000}
		if w.uid == 0 {
			group := b.group("memory")
			limited = func(mib int) []string { return group(mib << 20) }
			sizes = []int{4, 16, 48, 200}
		}
		p := b.files("", object{})
		b.create("box", p)
		before := b.processes()
		last := 0
		for _, mib := range sizes {
			m := mark()
			a := b.call(call{wrap: limited(mib)}, "exec", "--json", "box", "sh", "-c", "sleep "+m+" & head -c 9000000 /dev/zero | tr '\\0' x; exit 3")
			var r result.Result
			err := json.Unmarshal([]byte(a.stdout), &r)
			if last = a.status; last == 0 || last == 3 && err != nil || a.took > 20*time.Second {
				t.Errorf("with %d MiB: %v after %v", mib, a, a.took)
			}
			eventually(t, "its programs have ended", func() bool { return processes(m) == 0 })
			same(t, "the sandbox", "alive\n", b.exec("box", "echo", "alive").stdout)
			if b.call(call{wrap: limited(mib)}, "create", "-p", p, "new").status == 0 {
				b.run("delete", "new").exits(0)
			}
			eventually(t, "nothing else is there once dead ones are swept", func() bool {
				return b.run("sweep").status == 0 && strings.Join(b.ids(), " ") == "box"
			})
		}
		same(t, "status where there is enough", 3, last)
		eventually(t, "no process is left", func() bool { return b.processes() == before })
	})
}

// TestBadTimesClock: a clock that is set back changes nothing but what is shown, and no age is negative.
func TestBadTimesClock(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		b.create("box", b.files("", object{}))
		b.exec("box", "true").exits(0)
		ahead := time.Now().Add(1000 * time.Hour).UTC()
		events := filepath.Join(b.state, "box", "events.jsonl")
		changed := regexp.MustCompile(`(?m)(^{"time":")[^"]*`).ReplaceAllString(b.read(events), "${1}"+ahead.Format("2006-01-02T15:04:05.000000000Z"))
		_ = os.WriteFile(events, []byte(changed), 0o600) // events tells
		b.run("events", "box").exits(0).prints("created", "exec_ended", ahead.Format(time.DateOnly))
		if a := b.run("list").exits(0); regexp.MustCompile(`\s-\d`).MatchString(a.stdout) {
			t.Errorf("an age is negative: %v", a)
		}
		r := b.result("box", "sh", "-c", "sleep 0.1; exit 4")
		if r.ExitCode != 4 || r.Usage.WallMS < 100 || r.Usage.WallMS > 10_000 {
			t.Errorf("%+v", r)
		}
		b.exec("--timeout", "0.3", "box", "sleep", "20").exits(124)
	})
}

// TestBadTimesClockSources: the clock that can be set is for what people read. Nothing is measured by it, and nothing that
// was read from a file is compared with it but for show.
func TestBadTimesClockSources(t *testing.T) {
	if _, err := os.Stat("../main.go"); err != nil {
		t.Skip("the sources are not here")
	}
	uses := func(path, pattern string) {
		if found := regexp.MustCompile(pattern).FindString((&box{}).read(path)); found != "" {
			t.Errorf("%s has %q", path, found)
		}
	}
	files, _ := filepath.Glob("../forkexec/*.c")
	for _, file := range files {
		if filepath.Base(file) != "events.c" {
			uses(file, `CLOCK_REALTIME|gettimeofday|\btime\(`)
		}
	}
	sources(t, func(path string, _ *ast.File) {
		if strings.HasPrefix(path, "container/") {
			uses("../"+path, `time\.(Since|Until)\([^)]*\.(Created|Time)\b|\.(Created|Time)\.(Sub|Before|After|Add|Compare)\(`)
		}
	})
}
