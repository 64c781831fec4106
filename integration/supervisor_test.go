package integration

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/result"
)

// bothWays are the environments in which exec is answered before the Go runtime starts, and by it.
func bothWays() map[string][]string {
	return map[string][]string{"plain": nil, "go": {longWay}}
}

// statusLine is a field of /proc/PID/status.
func statusLine(t *testing.T, pid int, field string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("process %d has no %s", pid, field)
	return ""
}

// parentOf gives a process' parent and session.
func parentOf(t *testing.T, pid int) (parent, session int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	parent, _ = strconv.Atoi(fields[1])
	session, _ = strconv.Atoi(fields[3])
	return parent, session
}

// TestSupervisor: the supervisor has the one capability that keeps others from steering it, and a session of its own; and
// as root another user than a program that has a number of its own.
func TestSupervisor(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		users := []string{""}
		if w.uid == 0 {
			users = append(users, "4711")
		}
		for _, user := range users {
			keys := object{"version": 1}
			if user != "" {
				keys["user"] = 4711
			}
			mark := fmt.Sprintf("48%02d.%d", w.uid%100, os.Getpid())
			cmd, _ := b.launch(b.policy(keys), nil, "sh", "-c", "echo READY; exec sleep "+mark)
			program := 0
			eventually(t, "the program sleeps", func() bool {
				list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
				for _, p := range list {
					if text, _ := os.ReadFile(p); string(text) == "sleep\x00"+mark+"\x00" {
						program, _ = strconv.Atoi(strings.Split(p, "/")[2])
					}
				}
				return program != 0
			})
			supervisor, itsSession := parentOf(t, program)
			kept := uint64(1) << unix.CAP_WAKE_ALARM
			if w.uid == 0 { // the program is another user, whom it must be able to end
				kept |= 1 << unix.CAP_KILL
			}
			same(t, "the supervisor's capabilities", fmt.Sprintf("%016x", kept), statusLine(t, supervisor, "CapPrm"))
			same(t, "the program's capabilities", fmt.Sprintf("%016x", 0), statusLine(t, program, "CapPrm"))
			var session, callers int
			eventually(t, "the supervisor has a session", func() bool {
				_, session = parentOf(t, supervisor)
				return session == supervisor
			})
			_, callers = parentOf(t, cmd.Process.Pid)
			if session == callers || session == itsSession || itsSession == callers {
				t.Errorf("sessions: supervisor %d, program %d, launcher %d", session, itsSession, callers)
			}
			if mine, his := statusLine(t, supervisor, "Uid"), statusLine(t, program, "Uid"); user != "" && mine == his {
				t.Errorf("both have the ids %s", mine)
			}
			_ = cmd.Process.Signal(syscall.SIGTERM)
			same(t, "status", 128+15, statusOf(t, cmd, cmd.Wait()))
		}
	})
}

// TestForgedEnd: whatever a program does to its supervisor, an exec ends as the program does, or by its limit.
func TestForgedEnd(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		b.sh(b.files("", object{}), "for s in KILL STOP SEGV CHLD PIPE HUP 34; do kill -$s 1; done; sleep 0.2; echo alive").exits(0).prints("alive\n")
		p := b.limits(object{"wall": "2s", "cpu": "1m"}) // two processors use what cpu is by default in the same time
		for what, program := range map[string]string{
			"stopped, with the supervisor as its tracer": "ctypes.CDLL(None).ptrace(0, 0, 0, 0); os.kill(os.getpid(), 19)",
			"a storm of orphans": `
while True:
    if os.fork() == 0:
        while True:
            try:
                if os.fork() == 0: os._exit(0)
            except OSError: pass
            try: os.waitpid(-1, os.WNOHANG)
            except OSError: pass
    if time.time() > begun + 0.5: time.sleep(60)`,
		} {
			r := b.outcome(call{}, p, "python3", "-c", "import ctypes, os, time\nbegun = time.time()\n"+program)
			// Without a group a look at so many processes may not come to its end, and what has not been seen counts as too much.
			late := r.Outcome == result.CPUExceeded && r.ExitCode == 152 && r.Usage.Processes > 1000
			if (r.Outcome != result.Timeout || r.ExitCode != 124) && !late {
				b.t.Errorf("%s: %+v", what, r)
			}
		}
	})
}

// TestStartThatBlocks: somebody has a lease on the program, so that execve waits for as long as the host lets it, 45 s. The
// time of the exec is over before, and signals are heard.
func TestStartThatBlocks(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		content, err := os.ReadFile("/bin/true")
		if err != nil {
			t.Fatal(err)
		}
		dir := b.mkdir("tools")
		tool := b.file("tools/tool", string(content))
		if err := os.Chmod(tool, 0o755); err != nil {
			t.Fatal(err)
		}
		files := object{"read": []string{dir}}
		b.create("limited", b.policy(object{"version": 1, "files": files, "limits": object{"wall": "0.5s"}}))
		b.create("free", b.policy(object{"version": 1, "files": files}))
		for _, env := range bothWays() {
			b.call(call{env: env}, "exec", "free", tool).exits(0)
		}
		signal.Ignore(unix.SIGIO)
		f, err := os.Open(tool)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
			t.Skip("no lease can be taken: ", err)
		}
		for way, env := range bothWays() {
			a := b.call(call{env: env}, "exec", "limited", tool).exits(124)
			if a.took > 10*time.Second || !strings.Contains(a.stderr, "timeout") {
				t.Errorf("%s: %v: %v", way, a.took, a)
			}
			for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
				cmd := b.command(call{env: env}, "exec", "free", tool)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(300 * time.Millisecond)
				start := time.Now()
				_ = cmd.Process.Signal(sig)
				same(t, way+" "+sig.String(), 128+int(sig), statusOf(t, cmd, cmd.Wait()))
				if took := time.Since(start); took > 10*time.Second {
					t.Errorf("%s: %v ended the start after %v", way, sig, took)
				}
			}
		}
		eventually(t, "no process is left", func() bool { return processes(tool) == 0 })
		f.Close()
		b.exec("free", tool).exits(0)
	})
}

// TestTerminalsAreApart: an exec can neither open the terminal of another nor take all terminals of the machine.
func TestTerminalsAreApart(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		b.create("box", b.files("", object{}))
		cmd := b.command(call{}, "exec", "--tty", "box", "--", "sh", "-c", "tty; sleep 20")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}()
		if line, err := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != "/dev/pts/0" {
			t.Fatalf("the terminal is %q: %v", line, err)
		}
		for _, env := range bothWays() {
			b.call(call{env: env}, "exec", "box", "ls", "/dev/pts").exits(0).prints("ptmx\n")
			b.call(call{env: env}, "exec", "box", "python3", "-c", `
import os, pty
n = 0
try:
    while n < 1000: pty.openpty(); n += 1
except OSError: print(n <= 64)`).exits(0).prints("True\n")
		}
		b.run("exec", "--tty", "box", "--", "sh", "-c", "tty; stty size; echo >/dev/tty").exits(0).prints("/dev/pts/0", "24 80")
	})
}

// TestSwappedForATerminal: a program swaps another for a terminal of its own while that is started, and types ^C into it. A
// launcher without a terminal, as under cron, must not take it as its own.
func TestSwappedForATerminal(t *testing.T) {
	const program = `
import ctypes, os, pty, threading, time
master, slave = pty.openpty()
os.set_blocking(master, False)
os.symlink(os.ttyname(slave), "link")
libc = ctypes.CDLL(None)
end = time.time() + 20
def type_():
    while time.time() < end:
        try:
            os.write(master, b"\3"); os.read(master, 4096)
        except OSError: pass
        time.sleep(0.0001)
threading.Thread(target=type_, daemon=True).start()
print("READY", flush=True)
while time.time() < end and not os.path.exists("stop"): libc.renameat2(-100, b"link", -100, b"tool", 2)`
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		needProgram(t, "setsid")
		ws := b.mkdir("ws")
		content, err := os.ReadFile("/bin/true")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(b.file("ws/tool", string(content)), 0o755); err != nil {
			t.Fatal(err)
		}
		b.create("box", b.files(ws, object{"write": []string{ws}}))
		out := &lockedBuffer{}
		cmd := b.command(call{}, "exec", "box", "--", "python3", "-c", program)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the program swaps", func() bool { return strings.Contains(out.String(), "READY") })
		for _, env := range bothWays() {
			for range 30 {
				if a := b.call(call{env: env, wrap: []string{"setsid", "-w"}}, "exec", "box", filepath.Join(ws, "tool")); a.status == 128+2 {
					t.Fatalf("the terminal became the launcher's: %v", a)
				}
			}
		}
		b.file("ws/stop", "")
		same(t, "status", 0, statusOf(t, cmd, cmd.Wait()))
	})
}
