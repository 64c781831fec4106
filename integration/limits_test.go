package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/spec"
)

// rungs are the ways in which this machine can hold the limits of the box's user: by control groups where it has some,
// and, for root, without any, as in a container where /sys/fs/cgroup is read-only. A short run, as in an emulated guest, has the
// first alone.
func rungs(b *box, test func(b *box, c call)) {
	b.t.Helper()
	test(b, call{})
	if w.uid == 0 && !testing.Short() {
		test(b, call{wrap: []string{"unshare", "-m", "sh", "-c", `umount -lR /sys/fs/cgroup && exec "$@"`, "sh"}})
	}
}

// outcome runs a program in a sandbox of its own and reads the result.
func (b *box) outcome(c call, policy string, args ...string) result.Result {
	b.t.Helper()
	a := b.call(c, append([]string{"run", "--json", "--policy", policy, "--"}, args...)...)
	var r result.Result
	if err := json.Unmarshal([]byte(a.stdout), &r); err != nil {
		b.t.Fatalf("%v: %v", a, err)
	}
	same(b.t, "the command's exit status", r.ExitCode, a.status)
	return r
}

func (b *box) limits(limits object) string {
	b.t.Helper()
	return b.policy(object{"limits": limits, "files": object{"tmpfs": []object{{"path": "/tmp", "size": "1G"}}}})
}

// enforcedBy says what holds a limit.
func enforcedBy(limits []spec.Limit, name string) string {
	for _, l := range limits {
		if l.Name == name {
			return l.EnforcedBy
		}
	}
	return ""
}

func (b *box) expect(r result.Result, outcome, finding string, status int) {
	b.t.Helper()
	got := "null"
	if r.Finding != nil {
		got = *r.Finding
	}
	if r.Outcome != outcome || got != finding || r.ExitCode != status {
		b.t.Errorf("want %s %s %d: %+v, error %+v", outcome, finding, status, r, r.Error)
	}
}

const touch = `
import sys
def touch(mib):
    b = bytearray(mib << 20)
    b[::4096] = b"x" * len(b[::4096])
    return b
`

// TestLimitMemory: memory is what is used, of all processes together, and not address space.
func TestLimitMemory(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		rungs(b, func(b *box, c call) {
			p := b.limits(object{"memory": "128M", "wall": "100s"})
			ok := b.outcome(c, p, "python3", "-c", `
import mmap, threading
m = mmap.mmap(-1, 4 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
m[0:1] = b"x"
e = threading.Event()
t = [threading.Thread(target=e.wait) for _ in range(100)]
[x.start() for x in t]; e.set(); [x.join() for x in t]
print("fine")`)
			b.expect(ok, result.Exited, "null", 0)
			by := enforcedBy(ok.Limits, "memory")
			b.t.Logf("memory is held by %s", by)

			r := b.outcome(c, p, "python3", "-c", touch+`touch(400); print("GOT ALL")`)
			b.expect(r, result.MemoryExceeded, result.FindingMemory, 137)
			most := int64(128 + 64)
			if by == spec.ByWatcher { // how far a program comes before the next look is the machine's load
				most = 399
			}
			if r.Usage.MaxRSSBytes < 64<<20 || r.Usage.MaxRSSBytes > most<<20 {
				b.t.Errorf("it had up to %d MiB", r.Usage.MaxRSSBytes>>20)
			}
			b.expect(b.outcome(c, p, "sh", "-c", "head -c 400m /dev/zero | tail -c 400m | wc -c; sleep 5"), result.MemoryExceeded, result.FindingMemory, 137)
			b.expect(b.outcome(c, p, "python3", "-c", touch+`
import os, time
for i in range(4):
    if os.fork() == 0:
        b = touch(50); time.sleep(20); os._exit(0)
for i in range(4): os.wait()
time.sleep(20)`), result.MemoryExceeded, result.FindingMemory, 137)
			b.expect(b.outcome(c, p, "sh", "-c", "head -c 400m /dev/zero >/tmp/file; sleep 5"), result.MemoryExceeded, result.FindingMemory, 137)

			// What processes share counts once.
			b.expect(b.outcome(c, p, "python3", "-c", touch+`
import os, time
b = touch(80)
for i in range(4):
    if os.fork() == 0:
        sum(b[::4096]); time.sleep(0.3); os._exit(0)
print([os.wait()[1] for i in range(4)])`), result.Exited, "null", 0)

			// A program's own 137 is its own.
			b.expect(b.outcome(c, p, "sh", "-c", "exit 137"), result.Exited, result.FindingFailed, 137)
			b.expect(b.outcome(c, p, "sh", "-c", "kill -9 $$"), result.Signaled, result.FindingFailed, 137)
		})
	})
}

// TestLimitMemoryOfRuntimes: language runtimes that reserve much start under 256M.
func TestLimitMemoryOfRuntimes(t *testing.T) {
	flavours(t, func(b *box) {
		for name, args := range map[string][]string{"node": {"-e", "console.log('hello')"}, "java": {"-version"}, "python3": {"-c", "print('hello')"}} {
			if _, err := exec.LookPath("/usr/bin/" + name); err != nil {
				b.t.Logf("there is no /usr/bin/%s", name)
				continue
			}
			p := b.policy(object{"limits": object{"memory": "256M", "pids": 200, "wall": "60s"}, "files": object{"read": []string{"/etc"}}})
			b.expect(b.outcome(call{}, p, append([]string{"/usr/bin/" + name}, args...)...), result.Exited, "null", 0)
		}
	})
}

const bomb = `
import os, time
made = 0
try:
    for i in range(300):
        if os.fork() == 0:
            time.sleep(1); os._exit(0)
        made += 1
except OSError as e:
    print("errno", e.errno)
print("made", made)`

// TestLimitPids: processes and threads of the sandbox are limited, whatever else the user runs.
func TestLimitPids(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		for range 60 {
			cmd := exec.Command("sleep", "60")
			if err := cmd.Start(); err != nil {
				b.t.Fatal(err)
			}
			b.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		}
		rungs(b, func(b *box, c call) {
			p := b.limits(object{"pids": 20})
			r := b.outcome(c, p, "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 0.2 & done; wait; echo fine")
			b.expect(r, result.Exited, "null", 0)
			by := enforcedBy(r.Limits, "pids")
			b.t.Logf("processes are limited by %s", by)
			r = b.outcome(c, p, "python3", "-c", bomb)
			if by == spec.ByWatcher { // no process is refused: all are ended
				b.expect(r, result.PidsExceeded, result.FindingPids, 137)
				return
			}
			b.expect(r, result.PidsExceeded, result.FindingPids, 0)
			if r.Stdout != "errno 11\nmade 19\n" {
				b.t.Errorf("a fork bomb says %q", r.Stdout)
			}
			r = b.outcome(c, p, "python3", "-c", `
import os, threading, time
n = 0
try:
    for i in range(100):
        threading.Thread(target=time.sleep, args=(60,)).start(); n += 1
except RuntimeError: pass
print(n, flush=True)
os._exit(0)`)
			if r.Stdout != "19\n" {
				b.t.Errorf("threads: %q", r.Stdout)
			}
			// One is enough for a program that starts nothing.
			one := b.limits(object{"pids": 1})
			b.expect(b.outcome(c, one, "sh", "-c", "echo fine"), result.Exited, "null", 0)
			r = b.outcome(c, one, "python3", "-c", "import time; time.sleep(0.1)\n"+bomb)
			if r.Stdout != "errno 11\nmade 0\n" {
				b.t.Errorf("with one process it says %q", r.Stdout)
			}
			// A limit that no machine can reach limits nothing.
			b.expect(b.outcome(c, b.limits(object{"pids": 100000000}), "true"), result.Exited, "null", 0)
		})
	})
}

// TestLimitPidsTogether: the limit is the sandbox's: its execs share it.
func TestLimitPidsTogether(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		b.create("box", b.limits(object{"pids": 30}))
		by := enforcedBy(b.result("box", "true").Limits, "pids")
		const each = `
import os, time
try:
    for i in range(20):
        if os.fork() == 0: time.sleep(20); os._exit(0)
except OSError: pass
time.sleep(2)`
		most := 30
		switch by { // less exact: see docs/security.md
		case spec.ByRlimit:
			most += 70
		case spec.ByWatcher:
			most *= 4
		}
		sampled := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.together(4, func(int) *answer { return b.run("exec", "box", "python3", "-c", each) })
		}()
		for running := true; running; {
			select {
			case <-done:
				running = false
			case <-time.After(20 * time.Millisecond):
				sampled = max(sampled, strings.Count(b.run("ps", "box").stdout, "\n")-1)
			}
		}
		if sampled > most || sampled < 10 {
			b.t.Errorf("four execs had %d processes together under a limit of 30, held by %s", sampled, by)
		}
	})
}

// TestLimitCPU: processor time of all processes together, also of those that nobody waits for.
func TestLimitCPU(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		rungs(b, func(b *box, c call) {
			p := b.limits(object{"cpu": "0.5s", "wall": "20s"})
			r := b.outcome(c, p, "sh", "-c", "while :; do :; done & while :; do :; done & wait")
			b.expect(r, result.CPUExceeded, result.FindingCPU, 152)
			if r.Usage.CPUMS < 500 || r.Usage.CPUMS > 900 {
				b.t.Errorf("it used %v ms", r.Usage.CPUMS)
			}
			r = b.outcome(c, p, "python3", "-c", `
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    if os.fork() == 0:
        end = time.process_time() + 0.05
        while time.process_time() < end: pass
        os._exit(0)
    time.sleep(0.06)`)
			b.expect(r, result.CPUExceeded, result.FindingCPU, 152)
			// To sleep costs nothing, and a SIGXCPU of one's own is one's own.
			b.expect(b.outcome(c, p, "sleep", "0.7"), result.Exited, "null", 0)
			b.expect(b.outcome(c, p, "sh", "-c", "kill -XCPU $$"), result.Signaled, result.FindingFailed, 152)
		})
	})
}

// TestLimitCPUDefault: twice the time on the clock, also that of --timeout.
func TestLimitCPUDefault(t *testing.T) {
	flavours(t, func(b *box) {
		b.create("box", b.limits(object{"wall": "30s"}))
		value := func(r result.Result) float64 {
			for _, l := range r.Limits {
				if l.Name == "cpu" {
					return l.Value
				}
			}
			return 0
		}
		same(b.t, "the default", 60.0, value(b.result("box", "true")))
		a := b.run("exec", "--json", "--timeout", "5s", "box", "true")
		var r result.Result
		if err := json.Unmarshal([]byte(a.stdout), &r); err != nil {
			b.t.Fatal(err)
		}
		same(b.t, "with --timeout 5s", 10.0, value(r))
		// A program may set any limit of its own where the policy says nothing, as outside.
		own := b.result("box", "sh", "-c", "ulimit -t 7; ulimit -Ht")
		same(b.t, "a hard limit of its own", "7\n", own.Stdout)
		hard, err := exec.Command("sh", "-c", "ulimit -Ht").Output()
		b.mustDo(err)
		same(b.t, "the hard limit", string(hard), b.result("box", "sh", "-c", "ulimit -Ht").Stdout)
		b.create("asked", b.limits(object{"cpu": "30s"}))
		same(b.t, "the hard limit of a policy", "31\n", b.result("asked", "sh", "-c", "ulimit -Ht").Stdout)
	})
}

// share says how much of a processor a program may have had, whatever the machine's speed.
func (b *box) share(r result.Result, most float64) {
	b.t.Helper()
	const burst = 100 // milliseconds: a quota is for a tenth of a second
	if r.Usage.CPUMS > most*(1.1*r.Usage.WallMS)+burst {
		b.t.Errorf("with %v of a processor it had %v ms in %v ms", most, r.Usage.CPUMS, r.Usage.WallMS)
	}
}

// TestLimitCPUs: no more processors are busy at once than the policy says.
func TestLimitCPUs(t *testing.T) {
	flavours(t, func(b *box) {
		if out, err := exec.Command("nproc").Output(); err != nil || strings.TrimSpace(string(out)) == "1" {
			need(b.t, "second processor", false)
		}
		rungs(b, func(b *box, c call) {
			const busy = "timeout 1 sh -c 'while :; do :; done' & timeout 1 sh -c 'while :; do :; done' & wait; taskset -p 3 $$ >/dev/null 2>&1; echo $?"
			r := b.outcome(c, b.limits(object{"cpus": 1, "wall": "20s"}), "sh", "-c", busy)
			b.share(r, 1)
			by := enforcedBy(r.Limits, "cpus")
			b.t.Logf("processors are limited by %s", by)
			if by == spec.ByAffinity {
				same(b.t, "taskset inside fails", false, strings.TrimSpace(r.Stdout) == "0")
				one := b.outcome(c, b.limits(object{"cpus": 1}), "nproc")
				same(b.t, "processors inside", "1\n", one.Stdout)
			}
			half := b.call(c, "run", "--json", "--policy", b.limits(object{"cpus": 0.5, "wall": "20s"}), "--", "sh", "-c", busy)
			if by == spec.ByAffinity {
				half.exits(125).prints("limit_unenforceable", "limits.cpus = 0.5 cannot be enforced")
				best := b.policy(object{"enforce": "best_effort", "limits": object{"cpus": 0.5}})
				b.call(c, "run", "--policy", best, "--", "true").exits(0).complains("limits.cpus = 0.5 cannot be enforced")
				return
			}
			if err := json.Unmarshal([]byte(half.stdout), &r); err != nil {
				b.t.Fatalf("%v: %v", half, err)
			}
			b.share(r, 0.5)
		})
	})
}

// TestLimitOfOneExec: an exec may ask for less than its sandbox has, and gets a verdict of its own.
func TestLimitOfOneExec(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		for i, limits := range []object{{"memory": "512M", "pids": 100}, {}} {
			id := fmt.Sprintf("box%d", i)
			b.create(id, b.limits(limits))
			answers := b.together(2, func(i int) *answer {
				if i == 0 {
					return b.run("exec", "--json", "--memory", "64M", id, "python3", "-c", touch+"touch(200); print('GOT ALL')")
				}
				return b.run("exec", "--json", id, "python3", "-c", touch+"import time; b=touch(100); time.sleep(1); print('fine')")
			})
			answers[0].exits(137).prints(`"outcome":"memory_exceeded"`)
			answers[1].exits(0).prints(`"outcome":"exited"`, "fine")
			a := b.run("exec", "--json", "--pids", "5", id, "python3", "-c", bomb)
			if strings.Contains(a.stdout, `"pids","value":5,"enforced_by":"watcher"`) {
				a.exits(137).prints(`"outcome":"pids_exceeded"`)
			} else {
				a.exits(0).prints(`"outcome":"pids_exceeded"`, "made 4")
			}
			b.exec("--memory", "64M", id, "python3", "-c", touch+"touch(200)").exits(137).complains("memory_exceeded", "more than 64M")
		}
		// It cannot ask for more.
		b.exec("--json", "--memory", "4G", "box0", "true").prints(`"memory","value":536870912`)
		b.exec("--json", "--pids", "1000", "box0", "true").prints(`"pids","value":100`)
	})
}

// TestLimitReported: how each limit is held stands in state and in the result, and is read back.
func TestLimitReported(t *testing.T) {
	flavours(t, func(b *box) {
		p := b.policy(object{"limits": object{
			"wall": 30, "idle": 20, "cpu": 10, "cpus": 1, "memory": "256M", "pids": 64, "file": "10M", "disk": "1G",
			"nofile": 99, "output": "1M",
		}})
		b.create("box", p)
		var st struct{ Limits []spec.Limit }
		if err := json.Unmarshal([]byte(b.run("state", "box").stdout), &st); err != nil {
			b.t.Fatal(err)
		}
		r := b.result("box", "true")
		if !slices.Equal(st.Limits, r.Limits) || len(r.Limits) != 10 {
			b.t.Errorf("state says %v, the result %v", st.Limits, r.Limits)
		}
		for _, l := range r.Limits {
			if !l.Verified || l.EnforcedBy == "" || l.Value == 0 {
				b.t.Errorf("%+v", l)
			}
		}
		by := enforcedBy(r.Limits, "memory")
		for fact, kind := range map[string]string{"cgroup2": spec.ByCgroup2, "scope": spec.BySystemd} {
			if by != kind && slices.Contains(strings.Split(os.Getenv(envRequire), ","), fact) {
				b.t.Errorf("memory is held by %s, not %s", by, kind)
			}
		}
	})
}

// TestLimitPlainly: the plain form of exec says and does the same as the long one.
func TestLimitPlainly(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		b.create("box", b.limits(object{"wall": "3s", "idle": "2s", "cpu": "1s", "memory": "64M", "pids": 10, "file": "2M"}))
		for what, args := range map[string][]string{
			"memory": {"python3", "-c", touch + "touch(200)"},
			"cpu":    {"sh", "-c", "while :; do :; done"},
			"idle":   {"sleep", "20"},
			"wall":   {"sh", "-c", "while :; do echo x; sleep 0.3; done"},
			"file":   {"sh", "-c", "head -c 5m /dev/zero >/tmp/x; exit $?"},
			"pids":   {"python3", "-c", bomb},
			"none":   {"sh", "-c", "echo fine; exit 3"},
		} {
			plain := b.exec(append([]string{"box"}, args...)...)
			b.exec(append([]string{"--json", "box"}, args...)...)
			if (what != "none") != strings.Contains(plain.stderr, "sandboxrun: ") {
				b.t.Errorf("%s: %v", what, plain)
			}
		}
	})
}
