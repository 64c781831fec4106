package integration

import (
	"encoding/json"
	"fmt"
	"io/fs"
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

	"github.com/sandboxrun/sandboxrun/container/detached"
	"github.com/sandboxrun/sandboxrun/container/result"
)

// detach starts a detached exec and returns its name.
func (b *box) detach(id string, args ...string) string {
	b.t.Helper()
	a := b.run(append([]string{"exec", "--detach", id, "--"}, args...)...).exits(0)
	name := strings.TrimSuffix(a.stdout, "\n")
	if !regexp.MustCompile(`^e[0-9]{6}$`).MatchString(name) || a.stderr != "" {
		b.t.Fatalf("no name of an exec: %v", a)
	}
	return name
}

// ended waits for a detached exec of the sandbox box.
func (b *box) ended(name string) result.Result {
	b.t.Helper()
	a := b.run("wait", "--json", "box", name)
	var r result.Result
	if err := json.Unmarshal([]byte(a.stdout), &r); err != nil {
		b.t.Fatalf("%v: %v", a, err)
	}
	same(b.t, "exit status of wait", r.ExitCode, a.status)
	return r
}

// monitors finds the processes that have a detached exec's lock open, by the exec's name.
func (b *box) monitors(id string) map[string]int {
	found := map[string]int{}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		to, _ := os.Readlink(link)
		rest, ok := strings.CutPrefix(to, filepath.Join(b.state, id, "exec")+"/")
		if name, ok2 := strings.CutSuffix(rest, "/lock"); ok && ok2 {
			found[name], _ = strconv.Atoi(strings.Split(link, "/")[2])
		}
	}
	return found
}

// mark is a number of seconds that only this test sleeps for.
func mark() string { return fmt.Sprintf("46%06d.%d", rand.IntN(1e6), os.Getpid()) }

// sleepers counts the processes that sleep so long; others may have it in their command lines.
func sleepers(mark string) int {
	n := 0
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		if line, _ := os.ReadFile(file); string(line) == "sleep\x00"+mark+"\x00" {
			n++
		}
	}
	return n
}

func runs(mark string) bool { return sleepers(mark) > 0 }

// TestDetachOutlivesItsCommand: nothing that becomes of the command, its process group or its terminal ends the exec.
func TestDetachOutlivesItsCommand(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		b.create("box", b.files("", object{}))
		m := mark()

		// A job whose process group is killed.
		job := b.command(call{wrap: []string{"sh", "-c", `"$@"; exec sleep ` + m + `1`, "sh"}}, "exec", "-d", "box", "--", "sh", "-c", "sleep "+m+"2; echo whole")
		job.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := job.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "both sleep", func() bool { return runs(m+"1") && runs(m+"2") })
		if err := syscall.Kill(-job.Process.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = job.Wait()

		// A terminal that is closed, on whose session leader's end all of its foreground gets a SIGHUP.
		needProgram(t, "python3")
		terminal := exec.Command("/usr/bin/python3", "-c", `
import os, pty, sys
pid, m = pty.fork()
if pid == 0:
    os.execv("/bin/sh", ["sh", "-c", '"$@"; echo READY; exec sleep 100', "sh"] + sys.argv[1:])
out = b""
while b"READY" not in out:
    out += os.read(m, 1000)
os.close(m)
os.waitpid(pid, 0)
`, w.binary, "exec", "-d", "box", "--", "sleep", m+"3")
		terminal.Env = b.env
		if out, err := terminal.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}

		time.Sleep(100 * time.Millisecond)
		same(t, "the first sleeps", true, runs(m+"2"))
		same(t, "the second sleeps", true, runs(m+"3"))
		same(t, "monitors", 2, len(b.monitors("box")))
		for name, pid := range b.monitors("box") {
			if group, err := syscall.Getpgid(pid); err != nil || group != pid {
				t.Errorf("the monitor of %s is in the process group of %d, %v", name, group, err)
			}
		}
		b.run("kill", "box", "KILL").exits(0)
		same(t, "outcome", result.Signaled, b.ended("e000001").Outcome)
	})
}

// TestDetachHoldsNothing: the monitor has no descriptor of the command's and no variable, and its command line does not
// tell what runs.
func TestDetachHoldsNothing(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		b.create("box", b.files("", object{}))
		held := b.file("held", "")
		script := `exec 7<` + held + ` 8>` + held + `.out; "$@"; echo "status $?"`
		a := b.call(call{wrap: []string{"sh", "-c", script, "sh"}, env: []string{"CALLERS=hidden-variable"}},
			"exec", "-d", "-e", "K=hidden-variable", "box", "--", "sh", "-c", "sleep "+mark()+"; : secret").exits(0).prints("status 0")
		same(t, "stderr", "", a.stderr) // the call has ended although the exec has not: nobody has its standard output
		pid := b.monitors("box")["e000001"]
		for _, file := range []string{"environ", "cmdline"} {
			text := b.read(fmt.Sprintf("/proc/%d/%s", pid, file))
			if strings.Contains(text, "hidden-variable") || strings.Contains(text, "secret") {
				t.Errorf("%s of the monitor: %q", file, text)
			}
		}
		cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		same(t, "working directory", "/", cwd)
		for i := range 3 {
			to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, i))
			same(t, fmt.Sprintf("descriptor %d", i), "/dev/null", to)
		}
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, link := range links {
			if to, _ := os.Readlink(link); strings.HasPrefix(to, held) {
				t.Errorf("the monitor has %s open", to)
			}
		}
		if out, _ := exec.Command("ps", "-o", "sid=", "-p", strconv.Itoa(pid)).Output(); strings.TrimSpace(string(out)) != strconv.Itoa(pid) {
			t.Errorf("the monitor %d is in the session %s", pid, out)
		}
	})
}

// TestDetachEnds: with its sandbox, however that ends, and with its monitor. Nothing is left, and nothing comes again.
func TestDetachEnds(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.files("", object{})
		b.create("first", p)
		b.run("delete", "first").exits(0)
		before := b.count()
		write := "trap '' TERM HUP; while :; do echo more; echo more >&2; done & setsid sleep "

		m := mark()
		b.create("box", p)
		for range 3 {
			b.detach("box", "sh", "-c", write+m)
		}
		eventually(t, "it sleeps", func() bool { return sleepers(m) == 3 })
		b.run("delete", "box").exits(0)
		absent(t, filepath.Join(b.state, "box"))
		same(t, "it runs after delete", false, runs(m))
		same(t, "monitors after delete", 0, len(b.monitors("box")))
		b.settles("delete", before)

		owner := exec.Command("sleep", m+"9")
		if err := owner.Start(); err != nil {
			t.Fatal(err)
		}
		b.run("create", "--policy", p, "--owner", strconv.Itoa(owner.Process.Pid), "owned").exits(0)
		name := b.detach("owned", "sh", "-c", write+m)
		eventually(t, "it sleeps and writes", func() bool { return runs(m) && strings.Contains(b.run("logs", "owned").stdout, "more") })
		_ = owner.Process.Kill()
		_ = owner.Wait()
		eventually(t, "it has ended with the sandbox's owner", func() bool { return !runs(m) })
		eventually(t, "so has its monitor", func() bool { return len(b.monitors("owned")) == 0 })
		b.run("wait", "owned", name).exits(125).complains("sandbox_lost: the sandbox ended under the program")
		b.run("logs", "owned").exits(0).prints("more")
		b.run("sweep").exits(0).prints("owned")
		b.settles("sweep", before)

		b.create("box", p)
		name = b.detach("box", "sh", "-c", "echo kept; "+write+m)
		other := b.detach("box", "sh", "-c", "sleep 1; echo unharmed")
		eventually(t, "it sleeps and writes", func() bool { return runs(m) && strings.Contains(b.run("logs", "box", name).stdout, "more") })
		_ = syscall.Kill(b.monitors("box")[name], syscall.SIGKILL)
		r := b.ended(name)
		same(t, "outcome", result.SandboxLost, r.Outcome)
		same(t, "its output", true, strings.HasPrefix(r.Stdout, "kept\nmore\n"))
		eventually(t, "it has ended with its monitor", func() bool { return !runs(m) })
		r = b.ended(other)
		same(t, "the exec beside", "unharmed\n", r.Stdout)
		b.run("delete", "box").exits(0)
		b.settles("a monitor that was killed", before)
	})
}

// TestDetachKilled: a command or a monitor that is killed while it starts an exec leaves an exec that can be seen, or none.
func TestDetachKilled(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		b.create("box", b.files("", object{}))
		m := mark()
		b.detach("box", "true")
		before := b.processes()
		for i := range 40 {
			cmd := b.command(call{}, "exec", "-d", "box", "--", "sleep", m)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
			if i%2 == 0 {
				_ = cmd.Process.Kill()
			} else {
				for _, pid := range b.monitors("box") {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
			_ = cmd.Wait()
		}
		eventually(t, "each that runs has a name", func() bool {
			named := 0
			for name := range b.monitors("box") {
				if !strings.HasPrefix(name, ".") {
					named++
				}
			}
			return sleepers(m) == named
		})
		b.run("kill", "box", "KILL").exits(0)
		eventually(t, "nothing runs", func() bool { return !runs(m) && b.processes() <= before })
		b.run("delete", "box").exits(0)
	})
}

// TestDetachMany: twenty at once, each with its own name, output and result.
func TestDetachMany(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.files("", object{})
		b.create("warm", p)
		b.run("delete", "warm").exits(0)
		before := b.count()
		b.create("box", p)
		const n = 20
		var names [n]string
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				a := b.run("exec", "-d", "box", "--", "sh", "-c", fmt.Sprintf("echo I am %d; sleep 1; exit %d", i, i))
				names[i] = strings.TrimSpace(a.stdout)
			})
		}
		all.Wait()
		var list []struct{ Detached int }
		if err := json.Unmarshal([]byte(b.run("list", "--json").stdout), &list); err != nil || len(list) != 1 || list[0].Detached < 2 {
			t.Errorf("list says %+v, %v", list, err)
		}
		for i, name := range names {
			all.Go(func() {
				b.run("wait", "box", name).exits(i)
				b.run("logs", "box", name).prints(fmt.Sprintf("I am %d\n", i))
			})
		}
		all.Wait()
		eventually(t, "no monitor is left", func() bool { return len(b.monitors("box")) == 0 })
		b.run("delete", "box").exits(0)
		b.settles("twenty", before)
	})
}

// TestDetachOutputIsBounded: whatever a program writes, its monitor and the state directory stay small.
func TestDetachOutputIsBounded(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		b.create("box", b.policy(object{
			"files": object{"tmpfs": []object{{"path": "/tmp"}}}, "limits": object{"output": "64K"},
		}))
		name := b.detach("box", "sh", "-c", `
			yes out | head -c 200000000
			yes err | head -c 200000000 >&2
			touch /tmp/done
			sleep 100`)
		eventually(t, "all is written", func() bool { return b.run("exec", "box", "--", "test", "-e", "/tmp/done").status == 0 })
		text := b.read(fmt.Sprintf("/proc/%d/status", b.monitors("box")[name]))
		peak := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(text)
		if kib, err := strconv.Atoi(append(peak, "", "")[1]); err != nil || kib > 128<<10 {
			t.Errorf("the monitor's memory: %q", peak)
		}
		b.run("kill", "--exec", name, "box", "KILL").exits(0)
		r := b.ended(name)
		same(t, "stdout_bytes", 200_000_000, r.StdoutBytes)
		same(t, "stderr_bytes", 200_000_000, r.StderrBytes)
		same(t, "kept", true, r.StdoutTruncated && len(r.Stdout) < 70<<10 && strings.HasSuffix(r.Stdout, "out\n"))
		same(t, "warnings", 2, len(r.Warnings))
		total := int64(0)
		_ = filepath.WalkDir(filepath.Join(b.state, "box", "exec"), func(_ string, d fs.DirEntry, err error) error {
			if info, ierr := d.Info(); err == nil && ierr == nil && info.Mode().IsRegular() {
				total += info.Size()
				if info.Size() > detached.LogMax {
					t.Errorf("%s has %d bytes", d.Name(), info.Size())
				}
			}
			return nil
		})
		if total > 2*detached.LogMax+1<<20 {
			t.Errorf("the exec keeps %d bytes", total)
		}
		a := b.run("logs", "box", "--tail", "1")
		same(t, "the log's end", "out\n", a.stdout)
		a.complains(fmt.Sprintf("the log holds the first %d bytes of stdout; the %d after them are missing",
			detached.LogMax, 200_000_000-detached.LogMax))
		b.run("logs", "box", "--stderr", "--tail", "0").complains("bytes of stderr").hides("bytes of stdout")
	})
}

// TestDetachLimits: limits end a detached exec as any other, and wait tells of them.
func TestDetachLimits(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		b.create("box", b.policy(object{"limits": object{"wall": "1s"}}))
		m := mark()
		start := time.Now()
		name := b.detach("box", "sh", "-c", "echo begun; setsid sleep "+m+" & sleep "+m)
		if took := time.Since(start); took > 800*time.Millisecond {
			t.Errorf("the command took %v", took)
		}
		r := b.ended(name)
		same(t, "outcome", result.Timeout, r.Outcome)
		same(t, "finding", result.FindingWall, *r.Finding)
		same(t, "exit code", 124, r.ExitCode)
		same(t, "timed out", true, r.TimedOut)
		same(t, "output", "begun\n", r.Stdout)
		same(t, "it runs", false, runs(m))
		b.run("wait", "box", name).exits(124).complains("timeout: the program was ended after 1.")
	})
}
