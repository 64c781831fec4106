package container

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/container/stream"
	"github.com/sandboxrun/sandboxrun/fault"
)

// sandboxOf makes a sandbox of a policy that lives as long as the test.
func sandboxOf(tb testing.TB, text string) *Sandbox {
	tb.Helper()
	return sandboxFor(tb, policyOf(tb, text))
}

func run(t *testing.T, sb *Sandbox, req Request) *result.Result {
	t.Helper()
	r, err := sb.Start(req)
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func sh(script string) Request { return Request{Args: []string{"sh", "-c", script}} }

func TestOutcomes(t *testing.T) {
	sb := sandboxOf(t, "")
	tests := []struct {
		name, script, outcome, finding, signal string
		code                                   int
	}{
		{name: "success", script: "exit 0", outcome: result.Exited},
		{name: "failure", script: "exit 7", outcome: result.Exited, finding: result.FindingFailed, code: 7},
		{name: "the largest status", script: "exit 255", outcome: result.Exited, finding: result.FindingFailed, code: 255},
		{name: "exit 137 is no signal", script: "exit 137", outcome: result.Exited, finding: result.FindingFailed, code: 137},
		{name: "SIGKILL", script: "kill -9 $$", outcome: result.Signaled, finding: result.FindingFailed, signal: "SIGKILL", code: 137},
		{name: "SIGTERM", script: "kill -15 $$", outcome: result.Signaled, finding: result.FindingFailed, signal: "SIGTERM", code: 143},
		{name: "a child that outlives the program", script: "sleep 100 & exit 3", outcome: result.Exited, finding: result.FindingFailed, code: 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			r := run(t, sb, sh(tt.script))
			finding, signal := "", ""
			if r.Finding != nil {
				finding = *r.Finding
			}
			if r.Signal != nil {
				signal = *r.Signal
			}
			if r.Outcome != tt.outcome || finding != tt.finding || signal != tt.signal || r.ExitCode != tt.code {
				t.Errorf("got %s %q %q %d", r.Outcome, finding, signal, r.ExitCode)
			}
			if time.Since(start) > 20*time.Second {
				t.Error("it waited for the child")
			}
		})
	}
}

func TestOutputAndUsage(t *testing.T) {
	sb := sandboxOf(t, "limits.output = 100")
	r := run(t, sb, sh(`printf out; printf err >&2`))
	if r.Stdout != "out" || r.Stderr != "err" || r.StdoutBytes != 3 || r.StderrBytes != 3 || r.Encoding != "utf-8" {
		t.Errorf("got %+v", r)
	}
	if r.Exec != "e000001" || r.Usage.WallMS <= 0 || r.Usage.CPUMS <= 0 || r.Usage.Processes < 1 {
		t.Errorf("exec %q, usage %+v", r.Exec, r.Usage)
	}
	r = run(t, sb, sh(`printf '\377\0'`))
	if data, _ := base64.StdEncoding.DecodeString(r.StdoutBase64); r.Encoding != "utf-8" || string(data) != "\xff\x00" {
		t.Errorf("binary output: %q %q", r.Encoding, r.Stdout)
	}
	r = run(t, sb, sh(`for i in 1 2 3 4 5 6 7 8 9; do printf "line %d of some text\n" $i; done`))
	if !r.StdoutTruncated || r.StdoutBytes != 9*20 || !strings.HasPrefix(r.Stdout, "line 1") ||
		!strings.HasSuffix(r.Stdout, "line 9 of some text\n") || !strings.Contains(r.Stdout, "bytes left out") {
		t.Errorf("truncated output: %v %d %q", r.StdoutTruncated, r.StdoutBytes, r.Stdout)
	}
	if r.Exec != "e000003" {
		t.Errorf("third exec is %q", r.Exec)
	}
}

func TestTimeoutEndsTheTree(t *testing.T) {
	sb := sandboxOf(t, "")
	req := sh("echo started; (setsid sleep 300 &); trap '' TERM; sleep 300")
	req.Timeout = 300 * time.Millisecond
	r := run(t, sb, req)
	if r.Outcome != result.Timeout || !r.TimedOut || r.ExitCode != 124 || *r.Finding != result.FindingWall || r.Stdout != "started\n" {
		t.Errorf("got %+v", r)
	}
	if r.Usage.CPUMS <= 0 || r.Usage.Processes < 2 {
		t.Errorf("usage: %+v", r.Usage)
	}
	if list, err := sb.Processes(); err != nil || len(list) != 0 {
		t.Errorf("left: %v %v", list, err)
	}
	if r := run(t, sb, sh("exit 0")); r.Outcome != result.Exited {
		t.Errorf("the sandbox is of no more use: %+v", r)
	}
	sb = sandboxOf(t, "limits.wall = 0.2")
	if r := run(t, sb, sh("sleep 300")); !r.TimedOut {
		t.Errorf("limits.wall: %+v", r)
	}
}

func TestStdin(t *testing.T) {
	sb := sandboxOf(t, "")
	if r := run(t, sb, Request{Args: []string{"cat"}}); r.Stdout != "" || r.ExitCode != 0 {
		t.Errorf("no input: %+v", r)
	}
	big := strings.Repeat("x", 1<<20)
	if r := run(t, sb, Request{Args: []string{"wc", "-c"}, Stdin: strings.NewReader(big)}); r.Stdout != "1048576\n" {
		t.Errorf("input: %+v", r)
	}
	endless, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	if r := run(t, sb, Request{Args: []string{"true"}, Stdin: endless}); r.ExitCode != 0 {
		t.Errorf("input that never ends: %+v", r)
	}
}

func TestLimitOfOpenFilesIsTheCallers(t *testing.T) {
	// The Go runtime has raised that of this process; what a program started the usual way gets is the caller's.
	want, err := exec.Command("sh", "-c", "ulimit -n").Output()
	if err != nil {
		t.Fatal(err)
	}
	if r := run(t, sandboxOf(t, ""), sh("ulimit -n")); r.Stdout != string(want) {
		t.Errorf("the program has %q, the caller %q", r.Stdout, want)
	}
}

func TestStreamsAreCopiedNotShared(t *testing.T) {
	sb := sandboxOf(t, "")
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("before\n"); err != nil {
		t.Fatal(err)
	}
	req := sh(`readlink /proc/self/fd/1; : >/proc/self/fd/1`) // opening a shared file again would empty it
	req.Stdout = file
	r := run(t, sb, req)
	data, err := os.ReadFile(file.Name())
	if err != nil || !strings.HasPrefix(string(data), "before\npipe:") {
		t.Errorf("%q %v", data, err)
	}
	if r.StdoutBytes == 0 || r.Stdout != "" {
		t.Errorf("passed on: %+v", r)
	}
}

func TestTerminal(t *testing.T) {
	sb := sandboxOf(t, "")
	var out bytes.Buffer
	r := run(t, sb, Request{
		Args: []string{"sh", "-c", "tty; stty size; read x; echo got $x"}, Stdin: strings.NewReader("word\n"), Stdout: &out,
		Tty: &stream.Size{Rows: 7, Cols: 33},
	})
	got := out.String()
	if !strings.Contains(got, "/dev/pts/") || !strings.Contains(got, "7 33") || !strings.Contains(got, "got word") || r.ExitCode != 0 {
		t.Errorf("%q %+v", got, r)
	}
}

// startReady starts a script and waits for its first output.
func startReady(t *testing.T, sb *Sandbox, script string) *Running {
	t.Helper()
	out, in := io.Pipe()
	req := sh(script)
	req.Stdout = in
	running, err := sb.Start(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	return running
}

func TestSignal(t *testing.T) {
	sb := sandboxOf(t, "")
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGUSR1} {
		running := startReady(t, sb, "echo ready; while :; do sleep 0.05; done")
		if err := running.Signal(sig); err != nil {
			t.Fatal(err)
		}
		res, err := running.Wait()
		if err != nil || res.ExitCode != 128+int(sig) {
			t.Errorf("%v: %+v %v", sig, res, err)
		}
	}
}

func TestKillAndProcesses(t *testing.T) {
	sb := sandboxOf(t, "")
	running := startReady(t, sb, "echo ready; sleep 300; exit 0")
	list, err := sb.Processes()
	if err != nil || len(list) == 0 || list[0].Inside != 2 || !strings.HasPrefix(list[0].Command, "sh -c") {
		t.Errorf("processes: %+v %v", list, err)
	}
	if n, err := sb.Kill(unix.SIGTERM); n != 1 || err != nil {
		t.Errorf("killed %d: %v", n, err)
	}
	if res, err := running.Wait(); err != nil || *res.Signal != "SIGTERM" {
		t.Errorf("%+v %v", res, err)
	}
}

func TestSandboxLost(t *testing.T) {
	sb := sandboxOf(t, "")
	running := startReady(t, sb, "echo ready; sleep 300")
	if err := unix.PidfdSendSignal(int(sb.init.Fd()), unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	res, err := running.Wait()
	if err != nil || res.Outcome != result.SandboxLost || res.ExitCode != 125 || res.Error == nil {
		t.Errorf("%+v %v", res, err)
	}
	var e *Error
	if _, err := sb.Start(sh("true")); !errors.As(err, &e) || e.Code != "sandbox_lost" {
		t.Errorf("start in a dead sandbox: %v", err)
	}
}

func TestNotStarted(t *testing.T) {
	dir := t.TempDir()
	files := map[string]os.FileMode{"plain": 0o644, "noloader": 0o755, "relative": 0o755, "empty": 0o755}
	content := map[string]string{
		"plain": "x", "noloader": "#!/no/such/loader\n", "relative": "#!sh\n", "empty": "",
	}
	for name, mode := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content[name]), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	sb := sandboxOf(t, "files.read = ["+quote(dir)+"]")
	tests := []struct {
		req  Request
		code string
	}{
		{Request{Args: []string{"no-such-program"}}, fault.ProgramNotFound},
		{Request{Args: []string{"/no/such/program"}}, fault.ProgramNotFound},
		{Request{Args: []string{""}}, fault.ProgramNotFound},
		{Request{}, fault.ProgramNotFound},
		{Request{Args: []string{dir + "/plain"}}, fault.ProgramNotExecutable},
		{Request{Args: []string{dir}}, fault.ProgramNotExecutable},
		{Request{Args: []string{dir + "/noloader"}}, fault.InterpreterMissing},
		{Request{Args: []string{dir + "/relative"}}, fault.InterpreterRelative},
		{Request{Args: []string{"true"}, Dir: "/no/such/dir"}, fault.CwdMissing},
		{Request{Args: []string{"true", strings.Repeat("x", 1<<18)}}, "arguments_too_long"},
	}
	for _, tt := range tests {
		_, err := sb.Start(tt.req)
		var e *Error
		if !errors.As(err, &e) || e.Code != tt.code {
			t.Errorf("%.40q in %q: %v; want %s", tt.req.Args, tt.req.Dir, err, tt.code)
		}
	}
}

func quote(s string) string { return `"` + s + `"` }

// A setuid file that a program leaves in the caller's directory would make the caller of everybody who executes it.
func TestNoFileIsMadeSetuid(t *testing.T) {
	ws := filepath.Join(t.TempDir(), "ws")
	if err := os.Mkdir(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	const script = `
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def denied(what, f):
    try: f()
    except OSError as e: print(what, errno.errorcode[e.errno])
    else: print(what, "DONE")
open("f", "w").close()
os.chmod("f", 0o755)                                                   # controls
os.close(os.open("g", os.O_CREAT | os.O_WRONLY, 0o755))
os.mkdir("d")
fd = os.open("f", os.O_RDONLY, 0o6777)                                 # a mode without O_CREAT means nothing
for bits in (0o4755, 0o2755, 0o6755):
    for change in (lambda: os.chmod("f", bits), lambda: os.fchmod(fd, bits), lambda: os.chmod("f", bits, dir_fd=os.open(".", os.O_RDONLY))):
        os.chmod("f", 0o600); change(); print("mode %o" % os.stat("f").st_mode)
    denied("open", lambda: os.open("n%o" % bits, os.O_CREAT | os.O_WRONLY, bits))
    denied("tmpfile", lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, bits))
    denied("mknod", lambda: os.mknod("m%o" % bits, 0o100000 | bits))
print("openat2", libc.syscall(437, -100, b"f", 0, 0), ctypes.get_errno() == errno.ENOSYS)
`
	sb := sandboxOf(t, "files.write = ["+quote(ws)+"]\nworkdir = "+quote(ws))
	r := run(t, sb, Request{Args: []string{"/usr/bin/python3", "-c", script}})
	if r.ExitCode != 0 || strings.Contains(r.Stdout, "DONE") || strings.Count(r.Stdout, "EPERM") != 9 || strings.Count(r.Stdout, "mode 100755\n") != 9 ||
		!strings.Contains(r.Stdout, "openat2 -1 True") {
		t.Errorf("%s%s", r.Stdout, r.Stderr)
	}
	files, err := os.ReadDir(ws)
	if err != nil || len(files) != 3 {
		t.Errorf("%v %v", files, err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			t.Errorf("%s: %v %v", f.Name(), info.Mode(), err)
		}
	}
}
