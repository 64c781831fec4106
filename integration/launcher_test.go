package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/container/result"
)

// patience is how long one call of the launcher may take before the test says that it hangs.
const patience = 60 * time.Second

// box is one test's own launcher: a state directory, a policy directory and an environment.
type box struct {
	t     *testing.T
	dir   string // a fresh directory of the test's, with short names
	state string // --root
	env   []string
	as    []string // a command line that the launcher's is appended to, so that somebody else calls it

	policies int    // how many were written
	cgroup   string // how the names of its cgroups begin, where that has been learnt
}

// newBox gives the test its own state, and makes sure at the end that none of it is left.
func newBox(t *testing.T) *box {
	t.Helper()
	dir, err := os.MkdirTemp(w.scratch, "t") //nolint:usetesting // short, and programs may leave what is hard to remove
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b := &box{t: t, dir: dir, state: filepath.Join(dir, "state")}
	b.env = []string{
		"PATH=" + systemPath, "HOME=" + dir, "SANDBOXRUN_ROOT=" + b.state, "TMPDIR=" + dir, "LANG=C.UTF-8",
	}
	t.Cleanup(func() {
		for _, id := range b.ids() {
			b.run("delete", id)
		}
		if left := b.ids(); len(left) > 0 {
			t.Errorf("delete left %q in the state directory", left)
		}
		removeAll(dir)
	})
	return b
}

// ids lists the directories of sandboxes in the state directory.
func (b *box) ids() []string {
	entries, _ := os.ReadDir(b.state)
	var ids []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") { // no id begins with a dot
			ids = append(ids, e.Name())
		}
	}
	return ids
}

// path is a path in the test's directory.
func (b *box) path(parts ...string) string {
	return filepath.Join(append([]string{b.dir}, parts...)...)
}

// mkdir makes a directory in the test's directory and returns its path.
func (b *box) mkdir(parts ...string) string {
	b.t.Helper()
	p := b.path(parts...)
	if err := os.MkdirAll(p, 0o755); err != nil {
		b.t.Fatal(err)
	}
	return p
}

// file writes a file in the test's directory, with its parents, and returns its path.
func (b *box) file(name, content string) string {
	b.t.Helper()
	p := b.path(name)
	b.mkdir(filepath.Dir(name))
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return p
}

// link makes a symbolic link in the test's directory and returns its path.
func (b *box) link(name, target string) string {
	b.t.Helper()
	b.mkdir(filepath.Dir(name))
	p := b.path(name)
	if err := os.Symlink(target, p); err != nil {
		b.t.Fatal(err)
	}
	return p
}

// read returns a file's content, or the error's text.
func (b *box) read(p string) string {
	data, err := os.ReadFile(p)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// object is a JSON object in short.
type object = map[string]any

// policy writes a policy and returns its path. The keys are those of the policy format.
func (b *box) policy(keys object) string {
	b.t.Helper()
	keys["version"] = 1
	data, err := json.Marshal(keys)
	if err != nil {
		b.t.Fatal(err)
	}
	b.policies++
	return b.file(fmt.Sprintf("policy-%d.json", b.policies), string(data))
}

// files is a policy that has only the section files, and a working directory.
func (b *box) files(workdir string, files object) string {
	b.t.Helper()
	keys := object{"files": files}
	if workdir != "" {
		keys["workdir"] = workdir
	}
	return b.policy(keys)
}

// answer is what a call of the launcher gave.
type answer struct {
	t              *testing.T
	command        string
	stdout, stderr string
	status         int // 128 + n where the launcher itself was ended by signal n
	took           time.Duration
}

func (a *answer) String() string {
	return fmt.Sprintf("%s\nexit status %d\nstdout: %s\nstderr: %s", a.command, a.status, cut(a.stdout), cut(a.stderr))
}

// cut keeps failures readable.
func cut(s string) string {
	const most = 2000
	if len(s) > most {
		return s[:most/2] + "\n[…]\n" + s[len(s)-most/2:]
	}
	return s
}

// call describes a call of the launcher that is out of the ordinary.
type call struct {
	stdin io.Reader
	env   []string // beside the box's
	dir   string
	wrap  []string // a command line that the launcher's is appended to
}

// command prepares a call.
func (b *box) command(c call, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	b.t.Cleanup(cancel)
	line := slices.Concat(c.wrap, b.as, []string{w.binary}, args)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = append(slices.Clone(b.env), c.env...)
	cmd.Dir, cmd.Stdin = c.dir, c.stdin
	if c.dir == "" {
		cmd.Dir = b.dir
	}
	cmd.WaitDelay = 20 * time.Second // on a busy machine what was written may not have been read for a second
	return cmd
}

// call calls the launcher and waits for it.
func (b *box) call(c call, args ...string) *answer {
	b.t.Helper()
	var out, errs bytes.Buffer
	cmd := b.command(c, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	err := cmd.Run()
	a := &answer{
		t: b.t, command: "sandboxrun " + cut(strings.Join(args, " ")), stdout: out.String(), stderr: errs.String(), took: time.Since(start),
	}
	a.status = statusOf(b.t, cmd, err)
	return a
}

func statusOf(t *testing.T, cmd *exec.Cmd, err error) int {
	t.Helper()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	st := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if st.Signaled() {
		return 128 + int(st.Signal())
	}
	return st.ExitStatus()
}

// run calls the launcher as usual.
func (b *box) run(args ...string) *answer {
	b.t.Helper()
	return b.call(call{}, args...)
}

// sh runs a shell script in a sandbox of its own.
func (b *box) sh(policy, script string, args ...string) *answer {
	b.t.Helper()
	return b.run(append([]string{"run", "--policy", policy, "--", "sh", "-c", script, "sh"}, args...)...)
}

// python runs a Python program in a sandbox of its own.
func (b *box) python(policy, program string, args ...string) *answer {
	b.t.Helper()
	needProgram(b.t, "python3")
	return b.run(append([]string{"run", "--policy", policy, "--", "python3", "-c", program}, args...)...)
}

// create makes a sandbox that must be there afterwards.
func (b *box) create(id, policy string) {
	b.t.Helper()
	b.run("create", "--policy", policy, id).exits(0)
}

// result runs a program in a sandbox that exists and reads the result.
func (b *box) result(id string, args ...string) result.Result {
	b.t.Helper()
	a := b.run(append([]string{"exec", "--json", id, "--"}, args...)...)
	var r result.Result
	if err := json.Unmarshal([]byte(a.stdout), &r); err != nil {
		b.t.Fatalf("%v: %v", a, err)
	}
	return r
}

// exits says that the launcher must have exited so.
func (a *answer) exits(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Errorf("want exit status %d: %v", status, a)
	}
	return a
}

// prints says what must be on standard output.
func (a *answer) prints(wants ...string) *answer {
	a.t.Helper()
	for _, want := range wants {
		if !strings.Contains(a.stdout, want) {
			a.t.Errorf("want %q on stdout: %v", want, a)
		}
	}
	return a
}

// hides says what must be on neither stream.
func (a *answer) hides(secrets ...string) *answer {
	a.t.Helper()
	for _, s := range secrets {
		if strings.Contains(a.stdout, s) || strings.Contains(a.stderr, s) {
			a.t.Errorf("%q came out: %v", s, a)
		}
	}
	return a
}

// complains says what must be on standard error.
func (a *answer) complains(wants ...string) *answer {
	a.t.Helper()
	for _, want := range wants {
		if !strings.Contains(a.stderr, want) {
			a.t.Errorf("want %q on stderr: %v", want, a)
		}
	}
	return a
}

// same says that two values must be equal.
func same[T comparable](t *testing.T, what string, want, got T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// absent says that a path must not exist.
func absent(t *testing.T, p string) {
	t.Helper()
	if _, err := os.Lstat(p); err == nil {
		t.Errorf("%s exists", p)
	}
}

// because says, where a test fails, what is behind it.
func because(t *testing.T, reason string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(reason)
		}
	})
}

// eventually waits for a condition that another process brings about.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Errorf("after 10 s still not: %s", what)
}

// processes counts the host's processes whose command line holds a text.
func processes(text string) int {
	entries, _ := os.ReadDir("/proc")
	n := 0
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err != nil || pid == os.Getpid() {
			continue
		}
		line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if bytes.Contains(bytes.ReplaceAll(line, []byte{0}, []byte{' '}), []byte(text)) {
			n++
		}
	}
	return n
}

// ownerOf is the number of the user to whom a file belongs.
func ownerOf(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }
