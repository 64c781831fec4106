package integration

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// ways are the two ways of a plain exec; run has one.
func ways() map[string]call {
	return map[string]call{"short": {}, "long": {env: []string{longWay}}}
}

// TestOutputFails: output that the caller did not get is no success, whatever the command.
func TestOutputFails(t *testing.T) {
	flavours(t, func(b *box) {
		p := b.policy(object{})
		b.create("box", p)
		lines := [][]string{
			{"run", "-p", p, "--", "echo", "hi"},
			{"run", "-p", p, "--", "sh", "-c", "echo hi; sleep 0.2"},
			{"run", "--json", "-p", p, "--", "true"},
			{"exec", "box", "--", "echo", "hi"},
			{"exec", "--json", "box", "--", "true"},
			{"exec", "--tty", "box", "--", "echo", "hi"},
			{"list"},
			{"list", "--json"},
			{"state", "box"},
			{"ps", "box"},
			{"stats", "box"},
			{"events", "box"},
			{"explain", "-p", p, "/usr"},
			{"version"},
			{"--version"},
			{"--help"},
			{"run", "--help"},
			{"completion", "bash"},
			{"policy", "check", p},
			{"policy", "schema"},
			{"policy", "presets"},
			{"policy", "presets", "default"},
			{"spec", "-p", p},
		}
		for _, args := range lines {
			for name, c := range ways() {
				if name == "long" && args[0] != "exec" {
					continue
				}
				c.wrap = []string{"sh", "-c", `exec "$@" >/dev/full`, "sh"}
				b.call(c, args...).exits(125).complains("sandboxrun: output_failed: write standard output: ")
				// A closed pipe: as if SIGPIPE had ended us. Nobody wants to hear of it.
				c.wrap = []string{"sh", "-c", `{ sleep 0.1; "$@"; echo "status $?" >&2; } | :`, "sh"}
				b.call(c, args...).complains("status 141").hides("output_failed")
			}
		}
		// The program's own failure is more telling.
		for _, c := range ways() {
			c.wrap = []string{"sh", "-c", `exec "$@" >/dev/full`, "sh"}
			b.call(c, "exec", "box", "--", "sh", "-c", "echo hi; exit 3").exits(3).complains("output_failed")
			c.wrap = []string{"sh", "-c", `exec "$@" 2>/dev/full`, "sh"}
			b.call(c, "exec", "box", "--", "sh", "-c", "echo hi >&2").exits(125)
			// Where there is no standard output the program is told, as it would be without us.
			c.wrap = []string{"sh", "-c", `exec "$@" >&-`, "sh"}
			b.call(c, "exec", "box", "--", "sh", "-c", "echo hi || exit 9").exits(9)
		}
		b.call(call{wrap: []string{"sh", "-c", `exec "$@" >&-`, "sh"}}, "list").exits(125)
		b.exec("box", "--", "echo", "alive").exits(0).prints("alive\n")
	})
}

// TestOneOutput: where the caller's standard output and error are one file, what arrives has the order in which it was
// written.
func TestOneOutput(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.policy(object{})
		b.create("box", p)
		const script = `i=0; while [ $i -lt 20 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done`
		var want strings.Builder
		for i := range 20 {
			fmt.Fprintf(&want, "o%d\ne%d\n", i, i)
		}
		for _, to := range []string{`exec "$@" 2>&1`, `"$@" >both 2>&1; cat both`, `"$@" >>many 2>>many; cat many; rm many`} {
			for _, c := range ways() {
				c.wrap = []string{"sh", "-c", to, "sh"}
				same(t, to, want.String(), b.call(c, "exec", "box", "--", "sh", "-c", script).exits(0).stdout)
				same(t, to, want.String(), b.call(c, "run", "-p", p, "--", "sh", "-c", script).exits(0).stdout)
			}
		}
		for _, c := range ways() { // two files stay two
			a := b.call(c, "exec", "box", "--", "sh", "-c", "echo out; echo err >&2").exits(0)
			same(t, "standard output", "out\n", a.stdout)
			same(t, "standard error", "err\n", a.stderr)
		}
		out := b.path("kept")
		b.call(call{wrap: []string{"sh", "-c", `exec "$@" 2>&1`, "sh"}}, "run", "-p", p, "--output-dir", out, "--", "sh", "-c", script).exits(0)
		same(t, "what is kept of standard error", 20, strings.Count(b.read(out+"/stderr"), "e"))
	})
}

// TestInputStays: what a program does not read stays with the caller, exactly where its input is a file or a pipe.
func TestInputStays(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.policy(object{})
		b.create("box", p)
		list := b.file("list", "1\n2\n3\n")
		const loop = `n=0; while read -r l; do "$@" || exit; n=$((n+1)); done; echo loops:$n`
		big := b.file("big", string(bytes.Repeat([]byte("0123456789abcde\n"), 50_000)))
		for i, args := range [][]string{{"run", "-p", p, "--"}, {"exec", "--stdin", "box", "--"}, {"exec", "--stdin", "box", "--"}} {
			way := []string{"", "", longWay}[i:][:1]
			for _, from := range []string{`<"$0"`, `< <(cat "$0")`, `< <(cat "$0"; sleep 0.3)`} {
				a := b.call(call{env: way, wrap: []string{"bash", "-c", "{ " + loop + "; } " + from, list}}, append(args, "true")...)
				a.exits(0).prints("loops:3")
			}
			// Of a file the rest is still there, however much was read.
			for _, n := range []int{0, 1, 4096, 5000, 70_000, 200_000, 800_000 - 10} {
				const rest = `{ "$@" >/dev/null; wc -c; } <"$0"`
				a := b.call(call{env: way, wrap: []string{"sh", "-c", rest, big}}, append(args, "head", "-c", fmt.Sprint(n))...)
				same(t, fmt.Sprintf("left of a file after %d bytes", n), fmt.Sprintln(800_000-n), a.stdout)
			}
			// Of a pipe too, as long as the program has read little.
			for _, n := range []int{1, 4096, 5000, 40_000} {
				a := b.call(call{env: way, wrap: []string{"sh", "-c", `cat "$0" | { "$@" >/dev/null; wc -c; }`, big}}, append(args, "head", "-c", fmt.Sprint(n))...)
				same(t, fmt.Sprintf("left in a pipe after %d bytes", n), fmt.Sprintln(800_000-n), a.stdout)
			}
			// All of it arrives, by whatever it comes.
			for _, from := range []string{`"$@" <"$0"`, `cat "$0" | "$@"`, `bash -c 'exec 3<"$0"; "$@" <&3' "$0" "$@"`} {
				b.call(call{env: way, wrap: []string{"sh", "-c", from, big}}, append(args, "cksum")...).exits(0).prints(strings.Fields(cksum(t, big))[0] + " 800000")
			}
		}
		needProgram(t, "python3")
		const socket = `
import socket, subprocess, sys
a, b = socket.socketpair()
a.sendall(b"1\n2\n3\n"); a.shutdown(socket.SHUT_WR)
while True: # one line at a time, as a shell reads
    line = b""
    while not line.endswith(b"\n"):
        c = b.recv(1)
        if not c: sys.exit()
        line += c
    print("line", line.decode().strip(), flush=True)
    subprocess.run(sys.argv[1:], stdin=b, check=True)`
		b.call(call{wrap: []string{"python3", "-c", socket}}, "run", "-p", p, "--", "true").exits(0).prints("line 1\nline 2\nline 3\n")
		for _, c := range ways() {
			c.wrap = []string{"python3", "-c", socket}
			b.call(c, "exec", "-i", "box", "--", "true").exits(0).prints("line 1\nline 2\nline 3\n")
			b.call(c, "exec", "-i", "box", "--", "cat").exits(0).prints("line 1\n2\n3\n")
		}
	})
}

func cksum(t *testing.T, file string) string {
	t.Helper()
	out, err := exec.Command("cksum", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestInputFails: an input that cannot be read is not an empty one.
func TestInputFails(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.policy(object{})
		b.create("box", p)
		for i, args := range [][]string{{"run", "-p", p, "--"}, {"exec", "-i", "box", "--"}, {"exec", "-i", "box", "--"}} {
			with := func(redirect string, command ...string) *answer {
				return b.call(call{env: []string{"", "", longWay}[i:][:1], wrap: []string{"sh", "-c", `"$@" ` + redirect + `; exit`, "sh"}}, append(args, command...)...)
			}
			with("</tmp", "cat").exits(1).complains("standard input is a directory", "cat:")
			with("</tmp", "true").exits(0)
			with("0>/dev/null", "cat").exits(1).complains("cat:") // nohup has it so
			with("0>/dev/null", "true").exits(0).hides("sandboxrun:")
			with("</proc/$$/mem", "cat").exits(125).complains("sandboxrun: input_failed: read standard input: ")
			with("</proc/$$/mem", "sh", "-c", "cat; exit 3").exits(3).complains("input_failed")
		}
		b.execWith(call{wrap: []string{"sh", "-c", `"$@" </proc/$$/mem; exit`, "sh"}}, "--json", "-i", "box", "--", "cat").
			exits(125).prints(`"error":{"code":"input_failed"`, `"outcome":"exited"`)
		needProgram(t, "python3")
		// A pipe that somebody else has made non-blocking is not at its end when it is empty.
		const nonblocking = `
import os, subprocess, sys, time
r, w = os.pipe()
p = subprocess.Popen(sys.argv[1:], stdin=r, close_fds=True)
os.set_blocking(r, False)
for i in range(4): time.sleep(0.1); os.write(w, b"part%d\n" % i)
os.close(w); sys.exit(p.wait())`
		b.call(call{wrap: []string{"python3", "-c", nonblocking}}, "run", "-p", p, "--", "cat").exits(0).prints("part0\npart1\npart2\npart3\n")
		b.execWith(call{wrap: []string{"python3", "-c", nonblocking}}, "-i", "box", "--", "cat").exits(0).prints("part0\npart1\npart2\npart3\n")
		// The same for an output that is full.
		const slow = `
import os, subprocess, sys, time
r, w = os.pipe()
os.set_blocking(w, False)
p = subprocess.Popen(sys.argv[1:], stdout=w)
os.close(w); time.sleep(0.3)
n = 0
while b := os.read(r, 1000): n += len(b)
print("read", n); sys.exit(p.wait())`
		for _, c := range ways() {
			c.wrap = []string{"python3", "-c", slow}
			b.call(c, "exec", "box", "--", "head", "-c", "300000", "/dev/zero").exits(0).prints("read 300000")
		}
	})
}
