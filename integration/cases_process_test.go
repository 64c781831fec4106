package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestExitCodes: run, exec and --json agree on how a program ended, for every way of ending.
func TestExitCodes(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws := b.mkdir("ws")
		b.file("ws/plain", "x")
		b.file("ws/badint", "#!/no/such/interp\n")
		b.file("ws/empty", "")
		for _, f := range []string{"badint", "empty"} {
			if err := os.Chmod(ws+"/"+f, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		p := b.files(ws, object{"write": []string{ws}})
		b.create("box", p)
		type row struct {
			want int
			args []string
		}
		rows := []row{
			{0, []string{"true"}},
			{1, []string{"grep", "x", "/dev/null"}},
			{127, []string{"no-such-command"}},
			{126, []string{"./plain"}},
			{127, []string{"./badint"}},
			{126, []string{"/"}},
			{127, []string{"./plain/x"}},
			{126, []string{"./empty"}},
		}
		for _, n := range []int{1, 2, 100, 124, 125, 126, 127, 128, 137, 255} {
			rows = append(rows, row{n, []string{"sh", "-c", fmt.Sprintf("exit %d", n)}})
		}
		for _, s := range []syscall.Signal{1, 2, 3, 4, 6, 8, 9, 11, 13, 14, 15, 24, 31, 34, 64} {
			rows = append(rows, row{128 + int(s), []string{"sh", "-c", fmt.Sprintf("kill -%d $$; sleep 1", s)}})
		}
		for _, r := range rows {
			b.run(append([]string{"exec", "box", "--"}, r.args...)...).exits(r.want)
			res := b.result("box", r.args...)
			same(t, fmt.Sprintf("%q: exit_code", r.args), r.want, res.ExitCode)
			same(t, fmt.Sprintf("%q: timed_out", r.args), false, res.TimedOut)
			if r.want%3 == 0 { // it is one code path: a third will do
				b.run(append([]string{"run", "-p", p, "--"}, r.args...)...).exits(r.want)
			}
		}
	})
}

// launch starts a run in the background whose program has said READY.
func (b *box) launch(policy string, wrap []string, args ...string) (*exec.Cmd, *lockedBuffer) {
	b.t.Helper()
	out := &lockedBuffer{}
	cmd := b.command(call{wrap: wrap}, append([]string{"run", "-p", policy, "--"}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	eventually(b.t, "the program says READY", func() bool { return strings.Contains(out.String(), "READY") })
	return cmd, out
}

// TestSignals: what is sent to the launcher reaches the program, which is no deaf process 1.
func TestSignals(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.files("", object{})
		for _, s := range []string{"TERM", "ABRT", "INT", "HUP", "USR1", "ALRM", "PIPE"} {
			b.sh(p, "kill -"+s+" $$; sleep 0.3; echo SURVIVED").hides("SURVIVED")
		}
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM} {
			cmd, _ := b.launch(p, nil, "sh", "-c", "echo READY; exec sleep 4799.5")
			start := time.Now()
			_ = cmd.Process.Signal(sig)
			same(t, sig.String(), 128+int(sig), statusOf(t, cmd, cmd.Wait()))
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("%v ended the program after %v", sig, took)
			}
		}
		same(t, "programs left", 0, processes("sleep 4799.5"))

		cmd, out := b.launch(p, nil, "sh", "-c", `trap "echo got; exit 5" TERM; echo READY; while :; do sleep 0.05; done`)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		same(t, "a handler's own status", 5, statusOf(t, cmd, cmd.Wait()))
		if !strings.Contains(out.String(), "got") {
			t.Errorf("the handler did not run: %s", out)
		}

		// What the caller wants ignored the launcher does not pass on: nohup stays nohup.
		cmd, _ = b.launch(p, []string{"nohup"}, "sh", "-c", "echo READY; sleep 0.5; exit 7")
		_ = cmd.Process.Signal(syscall.SIGHUP)
		same(t, "under nohup", 7, statusOf(t, cmd, cmd.Wait()))
		if nothing := b.ids(); len(nothing) > 0 {
			t.Errorf("left: %q", nothing)
		}
	})
}

// TestStandardInput: exec has none unless asked, run passes its own on, whole, and closed streams are no trouble.
func TestStandardInput(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.files("", object{})
		b.create("box", p)
		never, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		for _, args := range [][]string{{"exec", "box", "--", "cat"}, {"exec", "--json", "box", "--", "cat"}, {"run", "--json", "-p", p, "--", "cat"}} {
			if a := b.call(call{stdin: never}, args...).exits(0); a.took > 5*time.Second {
				t.Errorf("a reader of the empty input took %v: %v", a.took, a)
			}
		}
		// A program that ends without reading does not wait for an input that never ends.
		b.call(call{stdin: never}, "run", "-p", p, "--", "true").exits(0)
		b.call(call{stdin: never}, "exec", "-i", "box", "--", "true").exits(0)

		lines := b.file("lines", "1\n2\n3\n")
		b.call(call{wrap: []string{"sh", "-c", `n=0; while read -r l; do "$@" </dev/stdin || exit; n=$((n+1)); done <"$0"; echo loops:$n`, lines}},
			"exec", "box", "--", "cat").exits(0).prints("loops:3")

		big := bytes.Repeat([]byte("0123456789abcdef"), 400_000)
		b.call(call{stdin: bytes.NewReader(big)}, "run", "-p", p, "--", "sh", "-c", "wc -c").exits(0).prints(strconv.Itoa(len(big)))
		b.call(call{stdin: bytes.NewReader(big)}, "exec", "--stdin", "box", "--", "sh", "-c", "wc -c").exits(0).prints(strconv.Itoa(len(big)))
		b.call(call{stdin: bytes.NewReader(big)}, "run", "-p", p, "--", "head", "-c", "10").exits(0)
		a := b.call(call{stdin: bytes.NewReader(big)}, "run", "-p", p, "--", "cat").exits(0)
		if !bytes.Equal([]byte(a.stdout), big) {
			t.Errorf("%d bytes came back of %d", len(a.stdout), len(big))
		}
		for redirect, want := range map[string]int{"<&-": 6, ">&-": 6, "2>&-": 6, ">&- 2>&-": 6, "<&- >&- 2>&-": 6} {
			b.call(call{wrap: []string{"sh", "-c", `exec "$@" ` + redirect, "sh"}}, "run", "-p", p, "--", "sh", "-c", "cat; exit 6").exits(want)
		}
	})
}

// TestSignalStates: what the caller ignores or blocks the program does not.
func TestSignalStates(t *testing.T) {
	const odd = `
import os, signal, sys
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, set(range(1, 65)) - {9, 19, 32, 33})
os.execvp(sys.argv[1], sys.argv[1:])`
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		p := b.files("", object{})
		b.create("box", p)
		wrap := []string{"python3", "-c", odd}
		script := `grep -E "^Sig(Ign|Blk|Pnd)" /proc/self/status; yes | head -1; echo pipe ${PIPESTATUS[0]}; sleep 5 & kill -TERM $!; wait $!; echo term $?`
		for _, args := range [][]string{{"run", "-p", p, "--"}, {"exec", "box", "--"}, {"exec", "--tty", "box", "--"}} {
			a := b.call(call{wrap: wrap}, append(args, "bash", "-c", script)...).exits(0)
			a.prints("SigIgn:\t0000000000000000", "SigBlk:\t0000000000000000", "pipe 141", "term 143").hides("roken pipe")
		}
	})
}

// TestDescriptors: a program has its three streams and no other descriptor, and no process that it can see has one.
func TestDescriptors(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		ws := b.mkdir("ws")
		b.file("hostdir/secret", "THE-SECRET")
		p := b.files(ws, object{"write": []string{ws}})
		b.create("box", p)
		wrap := []string{"bash", "-c", `exec 3<"$0" 7<"$0/secret" 9<"$0" 21>"$0/log" 15< <(sleep 2 2>/dev/null) 200<"$0"; exec "$@"`, b.path("hostdir")}
		script := `ls /proc/self/fd | tr '\n' ' '; for p in /proc/[0-9]*; do ls -l $p/fd 2>/dev/null; for i in $(seq 0 30) 200; do cat $p/fd/$i/secret $p/fd/$i/../hostdir/secret $p/cwd/secret $p/root/../secret; done; done 2>/dev/null
			for i in 7; do cat /proc/self/fd/$i; done 2>/dev/null; exit 0`
		for _, args := range [][]string{{"run", "-p", p, "--"}, {"exec", "box", "--"}, {"exec", "--json", "box", "--"}, {"exec", "-t", "box", "--"}} {
			a := b.call(call{wrap: wrap}, append(args, "sh", "-c", script)...).exits(0)
			a.prints("0 1 2 3 ") // 3 is the directory that ls reads
			a.hides("THE-SECRET", "hostdir")
		}
		for _, dir := range []string{"/proc/self/fd/9", "/proc/self/cwd", "/proc/1/root", "/dev/fd/9", "/proc/self/fd/3"} {
			a := b.call(call{wrap: wrap}, "run", "-p", b.policy(object{"workdir": dir}), "--", "cat", "secret", "hostdir/secret").hides("THE-SECRET")
			if a.status == 0 {
				t.Errorf("workdir %s: %v", dir, a)
			}
			if a = b.call(call{wrap: wrap}, "exec", "-C", dir, "box", "--", "cat", "secret").hides("THE-SECRET"); a.status == 0 {
				t.Errorf("--cwd %s: %v", dir, a)
			}
		}
	})
}

// TestVariables: only the variables that are listed are visible, in no process, and no value is on a command line.
func TestVariables(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		secret := fmt.Sprintf("topsecret-%d", os.Getpid())
		value := fmt.Sprintf("value-in-policy-%d", os.Getpid())
		env := []string{"SR_OK=yes", "SR_PAT_A=pa", "SR_PATX=no-" + secret}
		for _, n := range []string{
			"AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "BASH_ENV", "ENV", "PYTHONSTARTUP", "PYTHONPATH", "LD_LIBRARY_PATH", "GITHUB_TOKEN",
			"http_proxy", "DBUS_SESSION_BUS_ADDRESS", "_LIBCONTAINER_LOGLEVEL",
		} {
			env = append(env, n+"="+secret)
		}
		p := b.policy(object{"env": object{"allow": []string{"SR_OK", "SR_PAT_*"}, "set": object{"SR_KEY": value}}})
		script := `env; for p in /proc/[0-9]*; do tr "\0" "\n" <$p/environ; tr "\0" " " <$p/cmdline; done 2>/dev/null; exit 0`
		a := b.call(call{env: env}, "run", "-p", p, "--", "sh", "-c", script).exits(0)
		a.prints("SR_OK=yes", "SR_PAT_A=pa", "SR_KEY="+value, "\nPATH=/", "HOME=/").hides(secret)
		if a := b.call(call{env: env}, "create", "-p", p, "box").exits(0); a.stderr != "" {
			t.Errorf("create says %q", a.stderr)
		}
		b.call(call{env: env}, "exec", "box", "--", "sh", "-c", script).exits(0).prints("SR_OK=yes").hides(secret)
		b.exec("box", "--", "env").hides("SR_OK")

		// Nor is a value in what the host shows to everybody, or in our own processes that live as long as the sandbox.
		cmd, _ := b.launch(p, nil, "sh", "-c", "echo READY; exec sleep 30")
		same(t, "command lines with the value", 0, processes(value))
		for _, id := range b.ids() {
			state := b.run("state", id).exits(0)
			if state.hides(value); t.Failed() {
				t.Log(id)
			}
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
}

// TestOutputByPath: the standard streams can be opened by their names, whoever the program is.
func TestOutputByPath(t *testing.T) {
	const script = `echo a >/dev/stdout && echo b >/dev/stderr && echo c >>/proc/self/fd/1 && cat </dev/stdin && echo d | tee /dev/stderr >/dev/null && echo e >/dev/fd/1 && echo DONE`
	flavours(t, func(b *box) {
		users := []any{"caller", "root"}
		if w.uid == 0 {
			users = append(users, 4242)
		}
		for _, u := range users {
			p := b.policy(object{"user": u})
			for _, args := range [][]string{{"run", "-p", p, "--"}, {"run", "--json", "-p", p, "--"}, {"run", "--tty", "-p", p, "--"}} {
				a := b.call(call{stdin: strings.NewReader("typed\n")}, append(args, "sh", "-c", script)...).exits(0)
				a.prints("DONE", "a", "c", "e")
				if slices.Equal(args[:1], []string{"run"}) && args[1] == "-p" {
					a.complains("b\n", "d\n").prints("typed")
				}
			}
		}
	})
}

// TestStreamsAreNotOurs: what the launcher's streams are, the program can neither reopen nor change.
func TestStreamsAreNotOurs(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		p := b.files("", object{})
		in, out := b.file("in", "READ-ONLY INPUT\n"), b.file("out", "KEPT FROM BEFORE\n")
		wrap := []string{"sh", "-c", `in=$1 out=$2; shift 2; "$@" <"$in" >>"$out" 2>"$out.err"`, "sh", in, out}
		program := `echo overwritten >/proc/self/fd/0; echo overwritten >/dev/stdin; cat /proc/self/fd/1 /dev/stdout; truncate -s 0 /proc/self/fd/1; exec 5<>/proc/self/fd/1 && head -c 20 <&5; exit 0`
		control := exec.Command(wrap[0], append(wrap[1:], "timeout", "5", "sh", "-c", program)...)
		_ = control.Run()
		if b.read(in) == "READ-ONLY INPUT\n" && !strings.Contains(b.read(out), "KEPT FROM BEFORE\nKEPT") && w.uid != 0 {
			t.Errorf("without a sandbox the program changed nothing: the test shows nothing (%q)", b.read(out))
		}
		b.file("in", "READ-ONLY INPUT\n")
		b.file("out", "KEPT FROM BEFORE\n")
		b.call(call{wrap: append(wrap, "timeout", "20")}, "run", "-p", p, "--", "timeout", "5", "sh", "-c", program)
		same(t, "the launcher's input", "READ-ONLY INPUT\n", b.read(in))
		if got := b.read(out); !strings.HasPrefix(got, "KEPT FROM BEFORE\n") || strings.Count(got, "KEPT") != 1 {
			t.Errorf("the launcher's output was read or cut: %q", got)
		}
	})
}

// lockedBuffer is written by one goroutine while another reads.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
