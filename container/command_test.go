package container

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/stream"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/record"
	"github.com/sandboxrun/sandboxrun/spec"
)

// TestPutsProgram: a program that the exec itself brings is not looked for in the sandbox, where it is not yet.
func TestPutsProgram(t *testing.T) {
	req := Request{Carried: Carried{Put: []Put{{Path: "bin/tool"}, {Path: "./run.sh"}, {Path: "plain"}}}}
	for _, c := range []struct {
		name, path string
		put        bool
	}{
		{"bin/tool", "/w/bin/tool", true},
		{"./bin/../bin/tool", "/w/bin/tool", true},
		{"/w/run.sh", "/w/run.sh", true},
		{"./run.sh", "/w/run.sh", true},
		{"/usr/bin/tool", "/usr/bin/tool", false},
		{"../bin/tool", "/bin/tool", false},
		{"plain", "", false}, // a name without a slash is for PATH
		{"sh", "", false},
	} {
		if path, put := putsProgram(req, c.name, "/w"); path != c.path || put != c.put {
			t.Errorf("%s: %s, %v", c.name, path, put)
		}
	}
}

func TestLostRace(t *testing.T) {
	step := func(name string, err unix.Errno) error {
		return fmt.Errorf("start: %w", &forkexec.StepError{Step: name, Err: err})
	}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{unix.ENOENT, false},
		{step(forkexec.StepMount, unix.ENOENT), true},
		{step(forkexec.StepMount, unix.ENOTDIR), true},
		{step(forkexec.StepMount, unix.ELOOP), true},
		{step(forkexec.StepMount, unix.EPERM), false},
		{step(forkexec.StepExecve, unix.ENOENT), false},
	} {
		if got := lostRace(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// TestExplainedStarts: whose fault it is that a program was not started. A step of the program's own is never called the machine's.
func TestExplainedStarts(t *testing.T) {
	sb := newSandbox(t)
	sb.state.Launch.Limits.Pids = 10
	step := func(name, detail string, err unix.Errno) error {
		return &forkexec.NumberedError{Exec: "e000001", Err: &forkexec.StepError{Step: name, Detail: detail, Err: err}}
	}
	for _, c := range []struct {
		name string
		err  error
		code string
		text string
	}{
		{"no such program", step(forkexec.StepExecve, "", unix.ENOENT), fault.ProgramNotFound, `"prog"`},
		{"no right to execute", step(forkexec.StepExecve, "", unix.EACCES), fault.ProgramNotExecutable, `"prog"`},
		{"another machine's program", step(forkexec.StepExecve, "", unix.ENOEXEC), fault.ProgramNotExecutable, "exec format"},
		{"too many arguments", step(forkexec.StepExecve, "", unix.E2BIG), "arguments_too_long", "argument list"},
		{"its directory", step(forkexec.StepDir, `"/w/x"`, unix.ENOENT), fault.CwdMissing, `working directory "/w/x"`},
		{"the limit of processes", step(forkexec.StepUserns, "", unix.EAGAIN), fault.LimitReached, "its limit of processes"},
		{"a core limit", step(forkexec.StepRlimit, forkexec.CoreLimit, unix.EPERM), "limit_unenforceable", "core handler"},
		{"a terminal", step(forkexec.StepTerminal, "", unix.ENOSPC), "no_terminal", "open a terminal"},
		{"a file for it", step(forkexec.StepPut, `"f"`, unix.EROFS), fault.PutFailed, `put "f"`},
		{"a full disk", &os.PathError{Op: "write", Path: "events", Err: unix.ENOSPC}, "state_unusable", "no space"},
		{"a full quota", &os.PathError{Op: "write", Path: "events", Err: unix.EDQUOT}, "state_unusable", "quota"},
		{"too many files", step(forkexec.StepMount, "", unix.EMFILE), fault.LimitReached, "too many open files"},
	} {
		err := sb.explain(c.err, Request{Args: []string{"prog"}})
		if codeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %q, %v, want %s", c.name, codeOf(err), err, c.code)
		}
	}
	sb.state.Launch.Execute = []string{"/bin/sh"}
	err := sb.explain(step(forkexec.StepExecve, "", unix.EACCES), Request{Args: []string{"prog"}})
	if e, ok := errors.AsType[*Error](err); !ok || !strings.Contains(e.Hint, "processes.execute") {
		t.Errorf("a program that the policy does not list: %v", err)
	}
	sb.end()
	if err := sb.explain(errors.New("anything"), Request{Args: []string{"prog"}}); codeOf(err) != "sandbox_lost" {
		t.Errorf("of a sandbox that has ended: %v", err)
	}
}

// TestCommandOfAnExec: what is decided before anything is started.
func TestCommandOfAnExec(t *testing.T) {
	sb := newSandbox(t)
	in, err := sb.inside()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(in.FD)
	if _, err := sb.command(Request{}, in, nil); codeOf(err) != fault.ProgramNotFound {
		t.Errorf("no command: %v", err)
	}
	for dir, want := range map[string]string{"": sb.state.Launch.Dir, "/usr/../tmp": "/tmp", "a/../b": filepath.Join(sb.state.Launch.Dir, "b")} {
		cmd, err := sb.command(Request{Args: []string{"/bin/sh"}, Dir: dir}, in, nil)
		if err != nil || cmd.Dir != want || cmd.UID != sb.state.Launch.UID || len(cmd.Filter) == 0 {
			t.Errorf("%q: %s, %v", dir, cmd.Dir, err)
		}
	}
	if _, err := sb.command(Request{Args: []string{"sh"}, env: []string{"PATH=/nonexistent"}}, in, nil); codeOf(err) != fault.ProgramNotFound {
		t.Errorf("by another PATH: %v", err)
	}
	sb.filter = sb.filter[:len(sb.filter)-1]
	if _, err := sb.command(Request{Args: []string{"/bin/sh"}}, in, nil); codeOf(err) != "sandbox_lost" {
		t.Errorf("with half a filter: %v", err)
	}
}

// TestEnvironOfAnExec: what reaches a program, and what is redacted in what is kept of it.
func TestEnvironOfAnExec(t *testing.T) {
	const secret = "sk-0123456789abcdef"
	l := Launch{Exec: spec.Exec{
		Env: map[string]string{"HOME": "/h"}, EnvAllow: []string{"LANG", "MY_*"}, EnvDeny: []string{"MY_SECRET*"}, EnvSet: map[string]string{"MY_B": "policy"}, Redact: true,
	}}
	req := Request{
		Caller: map[string]string{"LANG": "C", "MY_A": "1", "MY_B": "caller", "MY_SECRET_KEY": secret, "OTHER": "x", "HOME": "/root"},
		Env:    map[string]string{"MY_B": "exec", "EXTRA": "e"},
	}
	for _, c := range []struct {
		name string
		more func(*Request)
		want string
	}{
		{"plain", func(*Request) {}, "EXTRA=e HOME=/h LANG=C MY_A=1 MY_B=exec"},
		{"on a terminal", func(r *Request) { r.Tty = &stream.Size{} }, "EXTRA=e HOME=/h LANG=C MY_A=1 MY_B=exec TERM=xterm"},
		{
			"on a terminal of the caller's kind", func(r *Request) {
				r.Tty = &stream.Size{}
				r.Env = map[string]string{"TERM": "screen"}
			}, "HOME=/h LANG=C MY_A=1 MY_B=policy TERM=screen",
		},
		{"with an answer", func(r *Request) { r.Answer = true }, "EXTRA=e HOME=/h LANG=C MY_A=1 MY_B=exec SANDBOXRUN_RESULT=3"},
	} {
		r := req
		r.Env = maps.Clone(req.Env)
		c.more(&r)
		env, redactor := madeUp(l).environ(r)
		slices.Sort(env)
		if got := strings.Join(env, " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		// The program did not get it, and may have read it elsewhere.
		if got := redactor.String("a " + secret + " b"); strings.Contains(got, secret) || !strings.Contains(got, "MY_SECRET_KEY") {
			t.Errorf("%s: redacted: %q", c.name, got)
		}
	}
	l.Redact = false
	if _, redactor := madeUp(l).environ(req); redactor != nil {
		t.Error("redacted without being asked")
	}
	for name, want := range map[string]string{"A": "1=2", "B": "", "AB": "", "": ""} {
		if got := variable([]string{"AA=0", "A=1=2", "B="}, name); got != want {
			t.Errorf("variable %q: %q", name, got)
		}
	}
}

// TestRedactedErrors: values are taken out of what is said and hinted, and the error is still what it was.
func TestRedactedErrors(t *testing.T) {
	const secret = "sk-0123456789abcdef"
	r := record.NewRedactor(map[string]string{"API_KEY": secret}, nil)
	cause := &fs.PathError{Op: "open", Path: "/w/" + secret, Err: unix.ENOENT}
	ours := fault.New("a_code", "try "+secret, "start %q: %w", secret, cause)
	ours.Sandbox, ours.Exec = "x", "e000001"
	got := r.Error(ours)
	e, ok := errors.AsType[*Error](got)
	if !ok || e.Code != "a_code" || e.Exec != "e000001" || strings.Contains(got.Error()+e.Hint, secret) || !strings.Contains(got.Error(), "<API_KEY>") {
		t.Errorf("%+v", got)
	}
	if !errors.Is(got, unix.ENOENT) || !errors.Is(got, cause) {
		t.Error("it is not what it was any more")
	}
	if ours.Hint != "try "+secret {
		t.Error("the error itself was changed")
	}
	if got := r.Error(cause); strings.Contains(got.Error(), secret) || !errors.Is(got, unix.ENOENT) {
		t.Errorf("another's error: %v", got)
	}
	clean := fault.New("a_code", "", "nothing in it")
	if got := r.Error(clean); got != error(clean) { //nolint:errorlint // the very same
		t.Errorf("changed: %v", got)
	}
	if got := (*record.Redactor)(nil).Error(ours); got.Error() != ours.Error() {
		t.Errorf("without a redactor: %v", got)
	}
}
