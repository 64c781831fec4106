package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/result"
)

// An exec is answered in one of two ways: by forkexec/client.c before the Go runtime starts, or by Go. No test, and no
// user, may find a difference but in time.

// longWay is the environment in which Go does all of it.
const longWay = "SANDBOXRUN_PLAIN_EXEC=off"

// differs is what may differ between two execs that do the same.
var differs = regexp.MustCompile(`"exec":"e\d+"|"(wall_ms|cpu_ms|max_rss_bytes|written_bytes|processes)":[0-9.]+|ended after [0-9.]+ s|denied-\w+-e\d+`)

// exec runs a program in a sandbox that exists, both ways, and compares all that the caller gets. So the program must do the same when
// it runs again. The answer is the short way's.
func (b *box) exec(args ...string) *answer {
	b.t.Helper()
	return b.execWith(call{}, args...)
}

func (b *box) execWith(c call, args ...string) *answer {
	b.t.Helper()
	args = append([]string{"exec"}, args...)
	short := b.call(c, args...)
	c.env = append([]string{longWay}, c.env...)
	long := b.call(c, args...)
	alike := func(s string) string { return differs.ReplaceAllString(s, "$1") }
	if short.status != long.status || alike(short.stdout) != alike(long.stdout) || alike(short.stderr) != alike(long.stderr) {
		b.t.Errorf("the two ways differ:\nshort %v\nlong  %v", short, long)
	}
	return short
}

// hostileOutput is what programs write to break a result.
func hostileOutput() map[string]string {
	return map[string]string{
		"nothing":          `exit 0`,
		"text":             `echo text; echo error >&2`,
		"not UTF-8":        `printf 'a\377b\300\200c'`,
		"surrogates":       `printf '\355\240\200\355\277\277'`,
		"beyond Unicode":   `printf '\364\220\200\200'`,
		"cut off":          `printf 'abc\342\202'`,
		"NUL":              `printf 'a\0b'`,
		"controls":         `printf '\001\010\011\012\013\014\015\033\037\177'`,
		"quotes":           `printf '"\\/<>&\047'`,
		"line separators":  `printf 'a\342\200\250b\342\200\251c\342\200\252'`,
		"all of Unicode":   `printf '\302\200\337\277\340\240\200\357\277\277\360\220\200\200\364\217\277\277'`,
		"looks like a key": `printf '","exec":"e999999","x":"'`,
		"holes":            `printf '\001\003\001\004'`,
		"1 MiB":            `head -c 1048576 /dev/zero | tr '\0' '"'`,
		"1 MiB of both":    `(head -c 1048576 /dev/zero | tr '\0' '\n') >&2; head -c 1048575 /dev/zero`,
		"too much":         `i=0; while [ $i -lt 700 ]; do echo "$i 0123456789 abcdefghijklmnopqrstuvwxyz"; i=$((i+1)); done`,
	}
}

// TestHostileOutput: whatever a program writes, its result says the same whichever way it was made.
func TestHostileOutput(t *testing.T) {
	flavours(t, func(b *box) {
		b.create("box", b.policy(object{}))
		b.create("capped", b.policy(object{"limits": object{"output": 1001}}))
		for what, script := range hostileOutput() {
			for _, id := range []string{"box", "capped"} {
				if a := b.exec("--json", id, "--", "sh", "-c", script).exits(0); !strings.Contains(a.stdout, `"outcome":"exited"`) {
					b.t.Errorf("%s: %v", what, a)
				}
			}
		}
	})
}

// options are what an exec can be asked for, with what it costs to look for.
func options(b *box) map[string][]string {
	return map[string][]string{
		"json":          {"--json"},
		"json after":    {"box", "--json", "--"},
		"env":           {"--env", "A=b", "--env=C=d=e"},
		"e":             {"-e", "A=b"},
		"both env":      {"-e", "A=b", "--env", "A=c"},
		"caller's env":  {"--env", "LC_TEST", "--json"},
		"no such env":   {"--env", "NO_SUCH"},
		"timeout":       {"--timeout", "1m", "--json"},
		"odd timeout":   {"--timeout=61.234s", "--json"},
		"long timeout":  {"--timeout", "1h2m3s", "--json"},
		"bare timeout":  {"--json", "-timeout", "100.5"},
		"bad timeout":   {"--timeout", "soon"},
		"no time":       {"--timeout", "0"},
		"cwd":           {"--cwd", "/usr/bin"},
		"relative cwd":  {"-C", "sub"},
		"odd cwd":       {"--cwd", "sub/../sub/."},
		"no such cwd":   {"--json", "--cwd", "/no/such"},
		"a file as cwd": {"--cwd", "/etc/passwd"},
		"stdin":         {"--stdin"},
		"i":             {"-i", "--json"},
		"twice":         {"--json", "--json"},
		"memory":        {"--json", "--memory", "64M"},
		"unknown":       {"--jsonn"},
		"result":        {"--result", b.path("result")},
		"result fd":     {"--result", "7"},
		"no such fd":    {"--result", "9"},
		"standard out":  {"--result", "1"},
		"result inside": {"--result", b.path("ws", "result")},
		"no directory":  {"--result", b.path("no", "result")},
		"all":           {"--json", "--timeout", "9s", "--env", "A=b", "--cwd", "/usr", "--stdin", "--result", "7"},
	}
}

// TestOptionsBothWays: each option, with programs that end in each way.
func TestOptionsBothWays(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		b.mkdir("ws", "sub")
		b.env = append(b.env, "LC_TEST=x y", "SOME_TOKEN=0123456789abcdef-secret")
		b.create("box", b.policy(object{
			"version": 1, "workdir": b.path("ws"), "files": object{"write": []string{b.path("ws")}, "deny": []string{b.path("ws", "not", "there")}},
			"limits": object{"wall": "70s", "memory": "1G", "pids": 100, "file": "1M"}, "env": object{"allow": []string{"PATH"}},
		}))
		b.create("secret", b.policy(object{"env": object{"allow": []string{"SOME_*"}}}))
		commands := map[string]string{
			"status": `echo "$A $C $LC_TEST"; pwd; cat; exit 3`, "signal": `kill -9 $$`, "file": `head -c 2M /dev/zero >/tmp/x; exit $?`,
			"key": `echo $SOME_TOKEN`, "quiet": `exit 0`,
		}
		for name, given := range options(b) {
			for what, script := range commands {
				for _, id := range []string{"box", "secret"} {
					args := append(append([]string{}, given...), id)
					if given[0] == "box" {
						args = append([]string{id}, given[1:]...)
					}
					results := map[string]string{}
					for way, env := range map[string][]string{"short": nil, "long": {longWay}} {
						_ = os.Remove(b.path("result"))
						_ = os.Remove(b.path("seven"))
						c := call{env: env, wrap: []string{"sh", "-c", `echo input | "$@" 7>seven`, "sh"}}
						a := b.call(c, append(append([]string{"exec"}, args...), "sh", "-c", script)...)
						text := fmt.Sprintf("status %d\n%s\n%s\n", a.status, a.stdout, a.stderr)
						for _, file := range []string{"result", "seven"} {
							data, _ := os.ReadFile(b.path(file)) // most have none
							text += fmt.Sprintf("%s: %s\n", file, data)
						}
						results[way] = differs.ReplaceAllString(text, "$1")
					}
					if results["short"] != results["long"] {
						t.Errorf("%s, %s, in %s:\nshort: %s\nlong: %s", name, what, id, results["short"], results["long"])
					}
				}
			}
		}
		if left, _ := filepath.Glob(b.path(".sandboxrun-result-*")); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}

// hasStatmount says whether the kernel tells where a mount's root is (Linux 6.8).
func hasStatmount() bool {
	const statmount = 457
	_, _, errno := unix.Syscall(statmount, 0, 0, 0)
	return errno != unix.ENOSYS
}

// TestShortWayIsTaken: what the other tests compare really goes two ways. A launcher that may have little address space cannot start Go at
// all, so an answer has come from the short way.
func TestShortWayIsTaken(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws := b.mkdir("ws")
		b.mkdir("ws", "sub")
		b.create("box", b.policy(object{
			"version": 1, "workdir": ws, "files": object{"write": []string{ws}, "deny": []string{filepath.Join(ws, "not", "there")}},
			"limits": object{"wall": "70s"},
		}))
		for name, given := range options(b) {
			taken := true
			switch name {
			case "both env", "no such env", "long timeout", "bad timeout", "no time", "odd cwd", "no such cwd", "a file as cwd", "twice", "memory", "unknown",
				"no such fd", "standard out", "result inside", "no directory":
				taken = false
			case "caller's env":
				continue
			case "result":
				if !hasStatmount() {
					continue
				}
			}
			args := append(append([]string{"exec"}, given...), "box")
			if given[0] == "box" {
				args = append([]string{"exec"}, given...)
			}
			c := call{wrap: []string{"sh", "-c", `exec setpriv --bounding-set -sys_resource --inh-caps -sys_resource prlimit --as=400000000:400000000 "$@" 7>seven`, "sh"}}
			if w.uid != 0 {
				c.wrap[2] = `exec prlimit --as=400000000:400000000 "$@" 7>seven`
			}
			a := b.call(c, append(args, "sh", "-c", "echo ran; exit 4")...)
			if taken != (a.status == 4) {
				t.Errorf("%s: the short way is taken: %v, want %v: %v", name, !taken, taken, a)
			}
		}
	})
}

// TestSandboxLostBothWays: a sandbox that ends under a program is judged alike, although then nothing of it is left to be asked.
func TestSandboxLostBothWays(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.policy(object{})
		for _, option := range []string{"--json", "--env=A=b"} {
			texts := map[string]string{}
			for way, env := range map[string][]string{"short": nil, "long": {longWay}} {
				b.create("box", p)
				var out, errs lockedBuffer
				cmd := b.command(call{env: env}, "exec", option, "box", "sh", "-c", "exec sleep 300")
				cmd.Stdout, cmd.Stderr = &out, &errs
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the program runs", func() bool { return strings.Contains(b.run("events", "box").stdout, "exec_started") })
				b.run("delete", "--force", "box").exits(0)
				_ = cmd.Wait()
				text := fmt.Sprintf("status %d\n%s\n%s", cmd.ProcessState.ExitCode(), out.String(), errs.String())
				texts[way] = differs.ReplaceAllString(text, "$1")
			}
			if texts["short"] != texts["long"] || !strings.Contains(texts["short"], "sandbox_lost") {
				t.Errorf("%s:\nshort: %s\nlong: %s", option, texts["short"], texts["long"])
			}
		}
	})
}

// TestUsageBothWays: what an exec has used is the program's, whichever launcher it was started by.
func TestUsageBothWays(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		b.create("free", b.policy(object{"files": object{"tmpfs": []object{{"path": "/tmp", "size": "1G"}}}}))
		b.create("limited", b.limits(object{"memory": "512M", "pids": 50, "cpu": "50s"}))
		for _, id := range []string{"free", "limited"} {
			for way, c := range ways() {
				usage := func(command ...string) result.Usage {
					var r result.Result
					a := b.call(c, append([]string{"exec", "--json", id, "--"}, command...)...).exits(0)
					if err := json.Unmarshal([]byte(a.stdout), &r); err != nil {
						b.t.Fatalf("%v: %v", a, err)
					}
					return r.Usage
				}
				if u := usage("true"); u.MaxRSSBytes < 128<<10 || u.MaxRSSBytes > 6<<20 || u.Processes != 1 || u.WallMS <= 0 || u.CPUMS <= 0 {
					b.t.Errorf("%s, %s: true: %+v", id, way, u)
				}
				if u := usage("python3", "-c", touch+"touch(100)"); u.MaxRSSBytes < 100<<20 || u.MaxRSSBytes > 135<<20 {
					b.t.Errorf("%s, %s: 100 MiB: %+v", id, way, u)
				}
				// Its true peak is found, although it is less than a launcher has.
				if u := usage("sleep", "0.05"); u.MaxRSSBytes < 512<<10 || u.MaxRSSBytes > 6<<20 {
					b.t.Errorf("%s, %s: sleep: %+v", id, way, u)
				}
				if u := usage("python3", "-c", "import time\nwhile time.process_time() < 0.3: pass"); u.CPUMS < 300 || u.WallMS < 300 {
					b.t.Errorf("%s, %s: 300 ms: %+v", id, way, u)
				}
			}
		}
	})
}
