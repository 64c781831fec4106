package container

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/recording"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/record"
	"github.com/sandboxrun/sandboxrun/spec"
)

// recorded makes a sandbox with a record in a directory of its own.
func recorded(t *testing.T, keys string) (*Sandbox, string) {
	t.Helper()
	p := policyOf(t, keys)
	plan := planFor(t, p, p.Limits)
	s, dir := newStore(t), filepath.Join(t.TempDir(), "record")
	sb, err := s.Create("test", plan, Options{Owner: &owner.Owner{PID: os.Getpid()}, Record: dir, Versions: map[string]string{"sandboxrun": "test"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Delete("test", nil) }) // it may be gone by then
	return sb, dir
}

func report(t *testing.T, dir string, o record.Options) *record.Report {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, record.FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := record.Verify(f, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRecordOfASandbox: the sandbox, each check, each exec and the end are told, once and in order.
func TestRecordOfASandbox(t *testing.T) {
	ws := t.TempDir()
	sb, dir := recorded(t, "name = \"pair\"\nlimits.nofile = 60\nfiles.write = ["+quote(ws)+"]")
	if r := run(t, sb, sh("echo out; echo err >&2; exit 3")); r.ExitCode != 3 {
		t.Fatalf("%+v", r)
	}
	run(t, sb, sh("kill -9 $$"))
	if _, err := sb.Start(Request{Args: []string{"no-such-program"}}); codeOf(err) != "program_not_found" {
		t.Errorf("not there: %v", err)
	}
	// What was only looked at, or put, is no exec.
	if _, err := sb.Files(""); err != nil {
		t.Error(err)
	}
	if err := sb.Put(ws, []Put{{Path: "f"}}); err != nil {
		t.Error(err)
	}
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	id := sb.state.ID
	if err := sb.Delete(key); err != nil {
		t.Fatal(err)
	}
	signature, err := os.ReadFile(filepath.Join(dir, record.FileName+".sig"))
	if err != nil {
		names := namesOf(t, dir)
		t.Fatalf("%v in %v", err, names)
	}
	r := report(t, dir, record.Options{Sandbox: id, Key: public, Signature: signature})
	if !r.Well || !r.Finished || r.End == nil || r.End.Why != record.Deleted || r.End.Execs != 3 || len(r.End.Orphans) != 0 || r.End.Orphans == nil {
		t.Errorf("%+v, %+v, %+v", r.Problems, r.End, r)
	}
	if len(r.Broken) != 0 || len(r.Held) < 10 || len(r.Unverified) != 0 || r.Session.Name != "pair" || r.Session.Sandbox != id || r.Session.Versions["sandboxrun"] != "test" {
		t.Errorf("%+v", r.Session)
	}
	if !slices.ContainsFunc(r.Session.Mounts, func(m record.Mount) bool { return m.Source == ws && m.Writable }) {
		t.Errorf("mounts: %+v", r.Session.Mounts)
	}
	var outcomes []string
	for _, run := range r.Runs {
		outcomes = append(outcomes, run.Exec+" "+run.Outcome)
	}
	if got := strings.Join(outcomes, ", "); got != "e000001 exited, e000002 signaled, e000003 not_started" {
		t.Errorf("runs: %s", got)
	}
	if _, other, err := ed25519.GenerateKey(nil); err != nil || report(t, dir, record.Options{Key: other.Public().(ed25519.PublicKey), Signature: signature}).Well { //nolint:forcetypeassert // it is one
		t.Errorf("another key is taken: %v", err)
	}
}

// TestNoExecWithoutItsRecord: where the record cannot be told of an exec there is none, whatever has become of the file.
func TestNoExecWithoutItsRecord(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(dir, file string) error
	}{
		{"removed", func(_, file string) error { return os.Remove(file) }},
		{"replaced", func(_, file string) error {
			return errors.Join(os.Remove(file), os.WriteFile(file, []byte("{}\n"), 0o600))
		}},
		{"a link", func(dir, file string) error {
			return errors.Join(os.Rename(file, file+".old"), os.Symlink(file+".old", file))
		}},
		{"cut off", func(_, file string) error { return os.Truncate(file, 10) }},
		{"its directory moved", func(dir, _ string) error { return os.Rename(dir, dir+".old") }},
		{"its directory a link", func(dir, _ string) error { return errors.Join(os.Rename(dir, dir+".old"), os.Symlink(dir+".old", dir)) }},
	} {
		marks := t.TempDir()
		sb, dir := recorded(t, "files.write = ["+quote(marks)+"]")
		if err := c.change(dir, filepath.Join(dir, record.FileName)); err != nil {
			t.Fatal(err)
		}
		if r, err := sb.Start(sh("touch " + marks + "/ran")); err == nil {
			_, _ = r.Wait()
			t.Errorf("%s: an exec was started", c.name)
		} else if codeOf(err) != fault.RecordUnusable {
			t.Errorf("%s: %v", c.name, err)
		}
		if names := namesOf(t, marks); len(names) != 0 {
			t.Errorf("%s: the program ran", c.name)
		}
		// That it cannot be ended is said, and keeps nothing here.
		if err := sb.Delete(nil); codeOf(err) != fault.RecordUnusable {
			t.Errorf("%s: delete: %v", c.name, err)
		}
		if ids, err := sb.store.ids(); err != nil || len(ids) != 0 {
			t.Errorf("%s: left %v, %v", c.name, ids, err)
		}
	}
}

// TestRecordWhereNobodySeesIt: a record in what the program sees, or in the state directory, refuses the sandbox and leaves nothing.
func TestRecordWhereNobodySeesIt(t *testing.T) {
	ws := t.TempDir()
	s := newStore(t)
	p := policyOf(t, "files.write = ["+quote(ws)+"]")
	plan := planFor(t, p, p.Limits)
	for _, dir := range []string{filepath.Join(ws, "record"), ws, filepath.Join(s.path, "record")} {
		_, err := s.Create("x", plan, Options{Owner: &owner.Owner{PID: os.Getpid()}, Record: dir})
		if codeOf(err) != fault.OutputDirGranted && codeOf(err) != fault.OutputDirUnusable {
			t.Errorf("%s: %v", dir, err)
		}
		if ids, err := s.ids(); err != nil || len(ids) != 0 {
			t.Errorf("%s: left %v, %v", dir, ids, err)
		}
	}
	if names := namesOf(t, ws); len(names) != 0 {
		t.Errorf("left in the grant: %v", names)
	}
}

// TestEndRecordOfTheDead: what a removal says of a record that a dead sandbox had, may have had, or was to be signed.
func TestEndRecordOfTheDead(t *testing.T) {
	s := newStore(t)
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	deadSandbox(t, s, "none", &State{})
	deadSandbox(t, s, "half", nil)
	deadSandbox(t, s, "torn", nil)
	deadSandbox(t, s, "gone", &State{Record: &recording.Location{Dir: "/nonexistent/r"}})
	if err := s.root.WriteFile("torn/state.json", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id   string
		key  ed25519.PrivateKey
		code string
	}{
		{"none", nil, ""}, {"none", key, fault.RecordUnusable}, {"half", nil, ""}, {"half", key, ""}, {"torn", nil, fault.RecordUnusable}, {"gone", nil, fault.RecordUnusable},
	} {
		if err := s.endRecord(c.id, nil, "", c.key); codeOf(err) != c.code {
			t.Errorf("%s, key %v: %v", c.id, c.key != nil, err)
		}
	}
}

func TestLastExec(t *testing.T) {
	s := newStore(t)
	deadSandbox(t, s, "x", nil)
	if n := s.lastExec("x"); n != 0 {
		t.Errorf("of none: %d", n)
	}
	for text, want := range map[string]uint64{
		"": 0, "short": 0, string(binary.NativeEndian.AppendUint64(nil, 41)): 41, string(binary.NativeEndian.AppendUint64(nil, 7)) + "more": 7,
	} {
		if err := s.root.WriteFile("x/execs", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if n := s.lastExec("x"); n != want {
			t.Errorf("%q: %d, want %d", text, n, want)
		}
	}
}

// TestOrphans: processes that are left in a sandbox's namespaces are found, wherever they are.
func TestOrphans(t *testing.T) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/uts", &st); err != nil {
		t.Fatal(err)
	}
	state := &State{Record: &recording.Location{UTS: st.Ino}}
	if list := orphans(state); !slices.ContainsFunc(list, func(o record.Orphan) bool { return o.PID == os.Getpid() }) {
		t.Errorf("this process is not found: %v", list)
	}
	cmd := exec.Command("unshare", "-Urpf", "sleep", "60") // a number that another sandbox has got
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	child := 0
	for end := time.Now().Add(5 * time.Second); child == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		child, _ = strconv.Atoi(strings.TrimSpace(string(data)))
	}
	if child == 0 {
		t.Fatal("unshare has started nothing")
	}
	if list := orphans(state); slices.ContainsFunc(list, func(o record.Orphan) bool { return o.PID == child }) {
		t.Errorf("a process in a PID namespace of its own is one: %v", list)
	}
	state.Record.UTS = 1
	if list := orphans(state); list == nil || len(list) != 0 { // looked, and found none
		t.Errorf("%v", list)
	}
}

// TestRecordContent: limits and checks are said as they are known elsewhere.
func TestRecordContent(t *testing.T) {
	list := recordLimits([]spec.Limit{{Name: "wall", Value: 1.5, EnforcedBy: spec.ByTimer, Verified: true}, {Name: "pids", Value: 2}})
	if len(list) != 2 || list[0] != (record.Limit{Name: "wall", Value: 1.5, EnforcedBy: spec.ByTimer, Verified: true}) || list[1].Verified {
		t.Errorf("%+v", list)
	}
	if recordLimits(nil) == nil {
		t.Error("no limits are nothing at all")
	}
	if claim("no_capability") == "no_capability" || claim("made_up") != "made_up" {
		t.Errorf("%q, %q", claim("no_capability"), claim("made_up"))
	}
	r := &Running{sb: madeUp(Launch{})}
	if err := errors.Join(r.openRecord(), r.recordResult(&result.Result{})); err != nil {
		t.Errorf("without a record: %v", err)
	}
	r.record.close()
}

// TestRefusedStarts: only a program's own fault makes an exec of its own.
func TestRefusedStarts(t *testing.T) {
	sb, dir := recorded(t, "")
	r := &Running{sb: sb, args: []string{"x"}}
	ours := fault.New("sandbox_unavailable", "", "ours")
	if err := r.refused(ours); !errors.Is(err, ours) || r.Name != "" {
		t.Errorf("%v, %q", err, r.Name)
	}
	theirs := fault.New("program_not_found", "", "theirs")
	err := r.refused(theirs)
	if e, ok := errors.AsType[*Error](err); !ok || e.Exec != "e000001" || e.Sandbox != sb.state.ID || !e.Isolated {
		t.Errorf("%+v", err)
	}
	if err := sb.Delete(nil); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, record.FileName))
	if err != nil || bytes.Count(data, []byte(`"not_started"`)) != 1 || !report(t, dir, record.Options{}).Well {
		t.Errorf("%s, %v", data, err)
	}
}

// TestRecordOfExecsAtTheEnd: execs that begin while the sandbox ends are in the record, or are not counted.
func TestRecordOfExecsAtTheEnd(t *testing.T) {
	for round := range 6 {
		sb, dir := recorded(t, "limits.pids = 30")
		var began atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			other, err := sb.store.Open("test")
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				defer other.Close()
				for {
					r, err := other.Start(Request{Args: []string{"/bin/true"}})
					if err == nil {
						began.Add(1)
						_, err = r.Wait()
					}
					if err != nil {
						if c := codeOf(err); c != fault.SandboxLost && c != fault.SandboxUnavailable {
							t.Errorf("at the end: %v", err)
						}
						return
					}
				}
			})
		}
		for began.Load() < 8 {
			runtime.Gosched()
		}
		time.Sleep(time.Duration(round) * time.Millisecond)
		if err := sb.Delete(nil); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if r := report(t, dir, record.Options{}); !r.Well || int64(len(r.Runs)) < began.Load() {
			t.Errorf("%d have begun, %d are recorded: %v", began.Load(), len(r.Runs), r.Problems)
		}
	}
}
