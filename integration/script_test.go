package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScript runs the command line's contract: each script of testdata/script, which says what each command, flag,
// error and exit status does.
//
// Beside testscript's own commands there are:
//
//	sr [-STATUS] ARG...        calls sandboxrun, which must exit with STATUS (0)
//	pty [-STATUS] INPUT ARG... the same on a terminal of 40 rows and 100 columns; INPUT ("" is none) is typed in
//	json FIELD [VALUE]         the last standard output is a JSON object in which FIELD (a.b.0.c) is there, and is VALUE
//	nothing DIR                no sandbox is left in a state directory
//	record DIR KIND [KEY]      writes a record into a new directory: see scriptRecord
//
// $ROOT is the state directory that they use, $UID and $GID are the caller's, $BIN is the binary.
func TestScript(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		testscript.Run(t, testscript.Params{
			Dir:   filepath.Join("testdata", "script"),
			Setup: setUpScript,
			Cmds: map[string]func(*testscript.TestScript, bool, []string){
				"sr": scriptRun, "pty": scriptPty, "json": scriptJSON, "nothing": scriptNothing, "record": scriptRecord,
			},
			Condition:          scriptCondition,
			RequireUniqueNames: true,
		})
	})
}

func setUpScript(e *testscript.Env) error {
	state := e.WorkDir + ".state" // beside the directory, which scripts grant
	e.Defer(func() { deleteAll(state); removeAll(state) })
	e.Setenv("BIN", w.binary)
	e.Setenv("ROOT", state)
	e.Setenv("SANDBOXRUN_ROOT", state)
	e.Setenv("UID", strconv.Itoa(w.uid))
	e.Setenv("SEEN", strconv.Itoa(seenID()))
	e.Setenv("GID", strconv.Itoa(w.gid))
	e.Setenv("HOME", filepath.Join(e.WorkDir, ".home"))
	e.Setenv("PATH", systemPath)
	e.Setenv("PPID", strconv.Itoa(os.Getpid()))
	return os.Mkdir(filepath.Join(e.WorkDir, ".home"), 0o700)
}

// deleteAll deletes what a script that failed has left, before its directory goes and nobody knows of it any more.
func deleteAll(state string) {
	entries, _ := os.ReadDir(state)
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			_ = exec.Command(w.binary, "--root", state, "delete", e.Name()).Run()
		}
	}
}

func scriptCondition(cond string) (bool, error) {
	switch cond {
	case "root":
		return w.uid == 0, nil
	case "user":
		return w.uid != 0, nil
	}
	return false, fmt.Errorf("unknown condition %q", cond)
}

// scriptStatus takes the expected exit status off a command's arguments.
func scriptStatus(ts *testscript.TestScript, neg bool, args []string) (int, []string) {
	if neg {
		ts.Fatalf("say which exit status: -STATUS")
	}
	if len(args) > 0 && strings.HasPrefix(args[0], "-") {
		if n, err := strconv.Atoi(args[0][1:]); err == nil {
			return n, args[1:]
		}
	}
	return 0, args
}

func scriptRun(ts *testscript.TestScript, neg bool, args []string) {
	want, args := scriptStatus(ts, neg, args)
	checkScript(ts, want, ts.Exec(w.binary, args...))
}

// checkScript compares an exit status and keeps stack traces out of what users see.
func checkScript(ts *testscript.TestScript, want int, err error) {
	got := 0
	if err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if errs := ts.ReadFile("stderr"); strings.Contains(errs, "goroutine ") || strings.Contains(errs, "panic:") {
		ts.Fatalf("a stack trace on stderr")
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// scriptPty uses Python's pty module: what it reads from the terminal becomes standard output.
func scriptPty(ts *testscript.TestScript, neg bool, args []string) {
	want, args := scriptStatus(ts, neg, args)
	if len(args) < 1 {
		ts.Fatalf("usage: pty [-STATUS] INPUT ARG...")
	}
	input, err := strconv.Unquote(`"` + args[0] + `"`)
	ts.Check(err)
	checkScript(ts, want, ts.Exec("/usr/bin/python3", append([]string{"-c", ptyProgram, input, w.binary}, args[1:]...)...))
}

const ptyProgram = `
import fcntl, os, pty, select, struct, sys, termios, time
pid, m = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    os.execv(sys.argv[2], sys.argv[2:])
typed, end = sys.argv[1].encode(), time.time() + 30
out = b""
while time.time() < end:
    # What is typed waits for the program to say READY: earlier it would go to a terminal in its usual mode.
    if typed and b"READY" in out:
        os.write(m, typed)
        typed = b""
    if not select.select([m], [], [], 0.1)[0]:
        continue
    try:
        b = os.read(m, 65536)
    except OSError:
        break
    if not b:
        break
    out += b
sys.stdout.buffer.write(out.replace(b"\r\n", b"\n"))
sys.stdout.flush()
status = os.waitpid(pid, 0)[1]
sys.exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))
`

func scriptJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: json FIELD [VALUE]")
	}
	text := ts.ReadFile("stdout")
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		ts.Fatalf("stdout is no JSON: %v\n%s", err, text)
	}
	if dec.More() {
		ts.Fatalf("stdout is more than one JSON value\n%s", text)
	}
	v, there := field(v, args[0])
	got := fmt.Sprint(v)
	if v == nil {
		got = "null"
	}
	if list, ok := v.([]any); ok {
		data, _ := json.Marshal(list)
		got = string(data)
	}
	if text, ok := v.(string); ok { // so that a newline can be written as \n
		got = strings.Trim(strconv.Quote(text), `"`)
	}
	holds := there && (len(args) == 1 || got == args[1])
	if holds == neg {
		ts.Fatalf("%s is %s (there: %v)", args[0], got, there)
	}
}

// field follows a dotted path into a JSON value.
func field(v any, path string) (any, bool) {
	if path == "" || path == "." {
		return v, true
	}
	for part := range strings.SplitSeq(path, ".") {
		switch c := v.(type) {
		case map[string]any:
			inner, ok := c[part]
			if !ok {
				return nil, false
			}
			v = inner
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(c) {
				return nil, false
			}
			v = c[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// scriptNothing waits a moment: what ends with its owner needs one.
func scriptNothing(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: nothing DIR")
	}
	var left bytes.Buffer
	for range 100 {
		left.Reset()
		entries, _ := os.ReadDir(ts.MkAbs(args[0]))
		for _, e := range entries {
			if e.IsDir() && !strings.HasPrefix(e.Name(), ".") { // no id begins with a dot
				fmt.Fprintln(&left, e.Name())
			}
		}
		if left.Len() == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	ts.Fatalf("left behind:\n%s", left.String())
}
