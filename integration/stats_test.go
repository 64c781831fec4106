package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/console"

	"github.com/sandboxrun/sandboxrun/container/journal"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/container/stats"
)

// stats reads what a sandbox uses.
func (b *box) stats(id string) stats.Stats {
	b.t.Helper()
	var s stats.Stats
	a := b.run("stats", "--json", id).exits(0)
	if err := json.Unmarshal([]byte(a.stdout), &s); err != nil {
		b.t.Fatalf("%v: %v", a, err)
	}
	return s
}

// background starts an exec and waits for its first output. The test's end ends it.
func (b *box) background(id string, command ...string) {
	b.t.Helper()
	cmd := b.command(call{}, append([]string{"exec", id, "--"}, command...)...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 100)); err != nil {
		b.t.Fatalf("%q says nothing: %v", command, err)
	}
}

const holder = touch + `
import threading, time
b = touch(100)
for _ in range(3): threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
print("ready", flush=True)
time.sleep(100)
`

// TestStats: the figures are true, whatever holds the limits.
func TestStats(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		rungs(b, func(b *box, c call) {
			t := b.t
			id := fmt.Sprintf("box%d", b.policies)
			p := b.policy(object{"enforce": "best_effort", "limits": object{"memory": "512M", "pids": 50, "cpus": 2}})
			b.call(c, "create", "--policy", p, id).exits(0)
			same(t, "pids of none", 0, b.stats(id).Pids)
			b.background(id, "python3", "-c", holder)
			s := b.stats(id)
			if got := float64(s.MemoryBytes) / (100 << 20); got < 0.8 || got > 1.2 {
				t.Errorf("100 MiB are %.2f times as much: %+v", got, s)
			}
			same(t, "threads and processes", 4, s.Pids)
			same(t, "execs", 1, s.Execs)
			same(t, "limit of pids", 50, *s.PidsLimit)
			b.background(id, "sh", "-c", "echo ready; while :; do :; done")
			first := b.stats(id)
			time.Sleep(500 * time.Millisecond)
			second := b.stats(id)
			if grown := second.CPUMS - first.CPUMS; grown < 20 || grown > 5000 {
				t.Errorf("in half a second a busy program used %v ms", grown)
			}
			same(t, "execs", 2, second.Execs)
			same(t, "threads and processes", 5, second.Pids)
			b.run("delete", id).exits(0)
		})
	})
}

// TestFollowEnds: both commands end with the sandbox, also where its owner has died, and when nobody reads them any more.
func TestFollowEnds(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.policy(object{})
		for _, command := range []string{"stats", "events"} {
			for _, end := range []string{"delete", "owner", "reader"} {
				owner := exec.Command("sleep", "100")
				if err := owner.Start(); err != nil {
					t.Fatal(err)
				}
				b.run("create", "--policy", p, "--owner", fmt.Sprint(owner.Process.Pid), "box").exits(0)
				cmd := b.command(call{}, command, "box", "--follow")
				out, err := cmd.StdoutPipe()
				if err == nil {
					err = cmd.Start()
				}
				if err != nil {
					t.Fatal(err)
				}
				if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
					t.Errorf("%s: %v", command, err)
				}
				start := time.Now()
				switch end {
				case "delete":
					b.run("delete", "box").exits(0)
				case "reader":
					out.Close()
				}
				if end != "reader" {
					_ = owner.Process.Kill()
					_, _ = io.Copy(io.Discard, out)
				}
				same(t, command+" --follow, "+end, 0, statusOf(t, cmd, cmd.Wait()))
				if d := time.Since(start); d > 5*time.Second {
					t.Errorf("%s, %s: it took %v", command, end, d)
				}
				_ = owner.Process.Kill()
				_ = owner.Wait()
				b.run("delete", "--force", "box").exits(0)
			}
		}
	})
}

// terminal is a program on a pseudo terminal, and what it has written.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	master console.Console
	mu     sync.Mutex
	text   []byte
	closed chan struct{}
}

func (b *box) terminal(width, height uint16, args ...string) *terminal {
	b.t.Helper()
	master, name, err := console.NewPty()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = master.Close() })
	slave, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	defer slave.Close()
	if err := master.Resize(console.WinSize{Height: height, Width: width}); err != nil {
		b.t.Fatal(err)
	}
	term := &terminal{t: b.t, cmd: b.command(call{env: []string{"TERM=xterm"}}, args...), master: master, closed: make(chan struct{})}
	term.cmd.Stdin, term.cmd.Stdout, term.cmd.Stderr = slave, slave, slave
	term.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := term.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() {
		defer close(term.closed)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			term.mu.Lock()
			term.text = append(term.text, buf[:n]...)
			term.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return term
}

func (term *terminal) shown() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return string(term.text)
}

// wait waits for the program's end.
func (term *terminal) wait() int {
	term.t.Helper()
	status := statusOf(term.t, term.cmd, term.cmd.Wait())
	<-term.closed
	return status
}

// screen is what a terminal of that width shows after such output: the control sequences that are known here are those
// that a table is redrawn with.
func screen(t *testing.T, text string, width int) []string {
	t.Helper()
	lines, row, col := []string{""}, 0, 0
	put := func(c byte) {
		if col == width {
			row, col = row+1, 0
		}
		for len(lines) <= row {
			lines = append(lines, "")
		}
		for len(lines[row]) <= col {
			lines[row] += " "
		}
		lines[row] = lines[row][:col] + string(c) + lines[row][col+1:]
		col++
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\r':
			col = 0
		case '\n':
			row++
			for len(lines) <= row {
				lines = append(lines, "")
			}
		case '\x1b':
			var n int
			end := i + strings.IndexAny(text[i:], "AKJm")
			_, _ = fmt.Sscanf(text[i:end], "\x1b[%d", &n)
			switch text[end] {
			case 'A':
				row = max(0, row-n)
			case 'K':
				lines[row] = lines[row][:min(col, len(lines[row]))]
			case 'J':
				lines = append(lines[:row], lines[row][:min(col, len(lines[row]))])
			}
			i = end
		default:
			put(c)
		}
	}
	return lines
}

// TestLiveTable: on a terminal the table is drawn over the last one, and the last one stays at Ctrl-C.
func TestLiveTable(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		b.create("box", b.policy(object{"enforce": "best_effort", "limits": object{"pids": 50}}))
		b.background("box", "sh", "-c", "echo ready; sleep 100")
		for _, width := range []uint16{100, 22} {
			term := b.terminal(width, 40, "stats", "--follow", "--interval", "0.1", "box")
			redrawn := func() bool { return strings.Count(term.shown(), "USED") >= 4 }
			eventually(t, "the table is redrawn", redrawn)
			if _, err := term.master.Write([]byte{3}); err != nil {
				t.Fatal(err)
			}
			same(t, "the status at Ctrl-C", 0, term.wait())
			text := term.shown()
			if n := strings.Count(text, "\x1b[K\r\n\x1b[J"); n < 3 || strings.Contains(text, "\x1b[2J") || strings.Contains(text, "\x1b[?") {
				t.Errorf("not redrawn in place: %q", text)
			}
			shown := strings.Join(screen(t, text, int(width)), "\n")
			if strings.Count(shown, "USED") != 1 || strings.Contains(shown, "^C") || strings.Count(shown, "execs") != 1 {
				t.Errorf("width %d: on the screen is\n%s", width, shown)
			}
			if width > 50 && !strings.Contains(shown, "pids            2       50") {
				t.Errorf("on the screen is\n%s", shown)
			}
		}
		term := b.terminal(100, 40, "stats", "-f", "--interval", "0.1", "box")
		eventually(t, "a table", func() bool { return strings.Contains(term.shown(), "execs") })
		b.run("delete", "box").exits(0)
		same(t, "the status at the sandbox' end", 0, term.wait())
		if shown := screen(t, term.shown(), 100); !strings.Contains(strings.Join(shown, "\n"), "execs           1") {
			t.Errorf("on the screen is %q", shown)
		}
	})
}

// events reads the events of a sandbox, and makes sure that each line is one.
func (b *box) events(id string) []journal.Event {
	b.t.Helper()
	var list []journal.Event
	for line := range strings.Lines(b.run("events", "--json", id).exits(0).stdout) {
		var e journal.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Event == "" || !strings.HasPrefix(line, `{"time":"`) {
			b.t.Errorf("%v: %s", err, line)
		}
		list = append(list, e)
	}
	return list
}

// TestEventsOfParallelExecs: whole lines, each exec's in order.
func TestEventsOfParallelExecs(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		const n = 40
		b.create("box", b.policy(object{}))
		var group sync.WaitGroup
		errs := make([]error, n)
		for i := range n {
			cmd := b.command(call{env: []string{longWay}}, "exec", "box", "true")
			group.Go(func() { errs[i] = cmd.Run() })
		}
		group.Wait()
		started, ended := map[string]bool{}, map[string]bool{}
		for _, e := range b.events("box") {
			switch e.Event {
			case journal.Started:
				started[e.Exec] = true
			case journal.Ended:
				if !started[e.Exec] || e.Outcome != result.Exited || e.ExitCode != 0 {
					t.Errorf("%+v", e)
				}
				ended[e.Exec] = true
			}
		}
		for _, err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
		same(t, "started", n, len(started))
		same(t, "ended", n, len(ended))
	})
}

// TestEventsRotate: a file that is long enough makes room for a new one, and a reader gets both.
func TestEventsRotate(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		b.create("box", b.policy(object{}))
		file := filepath.Join(b.state, "box", "events.jsonl")
		f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		line := `{"time":"2026-01-02T03:04:05.000000000Z","event":"warning","exec":"e000000","message":"` + strings.Repeat("x", 4000) + "\"}\n"
		const lines = 4<<20/4000 + 1
		if _, err := f.WriteString(strings.Repeat(line, lines)); err != nil {
			t.Fatal(err)
		}
		f.Close()
		follow := b.command(call{}, "events", "-f", "box")
		var out bytes.Buffer
		follow.Stdout = &out
		if err := follow.Start(); err != nil {
			t.Fatal(err)
		}
		long := call{env: []string{longWay}}
		b.call(long, "exec", "box", "true").exits(0)
		b.call(long, "exec", "box", "true").exits(0)
		if info, err := os.Stat(file); err != nil || info.Size() > 10_000 || info.Mode() != 0o600 {
			t.Errorf("the new file: %v %v", info, err)
		}
		same(t, "events", 1+lines+4, len(b.events("box")))
		b.run("delete", "box").exits(0)
		same(t, "follower", 0, statusOf(t, follow, follow.Wait()))
		same(t, "events that were followed", 1+lines+4+1, strings.Count(out.String(), "\n"))
	})
}

// TestEventsOnAFullDisk: an exec does without its events.
func TestEventsOnAFullDisk(t *testing.T) {
	flavours(t, func(b *box) {
		needRoot(b.t)
		b.mkdir("state")
		script := `mount -t tmpfs -o size=1m,mode=700 none "$SANDBOXRUN_ROOT" || exit 9
"$0" create --owner none box && "$0" exec box true && printf '{"torn' >>"$SANDBOXRUN_ROOT/box/events.jsonl"
cat /dev/zero >"$SANDBOXRUN_ROOT/box/fill"
yes x | head -c 4090 >>"$SANDBOXRUN_ROOT/box/events.jsonl"
"$0" exec --json box sh -c 'echo out; exit 3'; s=$?
rm "$SANDBOXRUN_ROOT/box/fill"
"$0" exec box true
"$0" events box >&2
"$0" delete box
exit $s`
		a := b.call(call{wrap: []string{"unshare", "-m", "sh", "-c", script}})
		a.exits(3).prints(`"stdout":"out\n"`, `"warnings":["an event of this exec was not kept: write events.jsonl: no space left on device"]`)
		a.complains("created", "exited 0")
	})
}
