package container

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/flock"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/fault"
)

// newStore makes an empty state directory.
func newStore(tb testing.TB) *Store {
	tb.Helper()
	s, err := OpenStore(filepath.Join(tb.TempDir(), "state"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// codeOf is the code of an error of ours, or "" where it has none.
func codeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// deadSandbox makes the directory of a sandbox whose process 1 has ended, with a state unless that is nil.
func deadSandbox(tb testing.TB, s *Store, id string, st *State) {
	tb.Helper()
	lock, err := s.reserve(id)
	if err != nil {
		tb.Fatal(err)
	}
	if st != nil {
		st.Version, st.ID = stateVersion, id
		saveState(tb, s, id, st)
	}
	lock.Close()
}

func saveState(tb testing.TB, s *Store, id string, st *State) {
	tb.Helper()
	data, err := json.Marshal(st)
	if err == nil {
		err = s.save(id, data)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// lockOf takes the lock of a sandbox as its process 1 has it, until the test ends or the file is closed.
func lockOf(tb testing.TB, s *Store, id string) *os.File {
	tb.Helper()
	f, err := s.root.OpenFile(filepath.Join(id, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = flock.Lock(f, unix.LOCK_EX)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { f.Close() })
	return f
}

func TestParseState(t *testing.T) {
	good, err := json.Marshal(&State{Version: stateVersion, ID: "x", PID: 7})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, data, want string }{
		{"its own", string(good), ""},
		{"cut off", string(good[:len(good)/2]), `read state of sandbox "x": unexpected end of JSON`},
		{"empty", "", "unexpected end of JSON"},
		{"of another sandbox", strings.Replace(string(good), `"id":"x"`, `"id":"y"`, 1), `it is that of "y"`},
		{"of another version", strings.Replace(string(good), `"version":2`, `"version":1`, 1), "made by another version"},
		{"without a version", `{"id": "x"}`, "made by another version"},
		{"another kind", `[1]`, "cannot unmarshal"},
		{"a pid that is no number", strings.Replace(string(good), `"pid":7`, `"pid":"7"`, 1), "cannot unmarshal"},
		{"a pid beyond all numbers", strings.Replace(string(good), `"pid":7`, `"pid":99999999999999999999`, 1), "cannot unmarshal"},
		{"more after it", string(good) + "{}", "invalid character"},
	} {
		st, err := parseState("x", []byte(c.data))
		switch {
		case c.want == "":
			if err != nil || st.PID != 7 {
				t.Errorf("%s: %+v, %v", c.name, st, err)
			}
		case err == nil || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestStateIsTheCallersOwnFile: whatever somebody has put in the place of state.json is not read.
func TestStateIsTheCallersOwnFile(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "state.json")
	text, err := json.Marshal(&State{Version: stateVersion, ID: "x"})
	if err == nil {
		err = os.WriteFile(elsewhere, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		make func(path string) error
		code string
	}{
		{"a symlink", func(p string) error { return os.Symlink(elsewhere, p) }, fault.StateChanged},
		{"a link to nothing", func(p string) error { return os.Symlink("/nonexistent", p) }, fault.StateChanged},
		{"a link to nothing of the sandbox's", func(p string) error { return os.Symlink("none", p) }, fault.StateChanged},
		{"a link to the lock", func(p string) error { return os.Symlink("lock", p) }, "-"},
		{"a hard link", func(p string) error { return os.Link(elsewhere, p) }, fault.StateChanged},
		{"a named pipe", func(p string) error { return unix.Mkfifo(p, 0o600) }, fault.StateChanged},
		{"a directory", func(p string) error { return os.Mkdir(p, 0o700) }, fault.StateChanged},
		{"a file of the group's", func(p string) error {
			return errors.Join(os.WriteFile(p, text, 0o600), os.Chmod(p, 0o620))
		}, fault.StateChanged},
		{"a file of everybody's", func(p string) error {
			return errors.Join(os.WriteFile(p, text, 0o600), os.Chmod(p, 0o602))
		}, fault.StateChanged},
		{"its own", func(p string) error { return os.WriteFile(p, text, 0o600) }, "ok"},
	} {
		s := newStore(t)
		deadSandbox(t, s, "x", nil)
		if err := c.make(filepath.Join(s.path, "x", "state.json")); err != nil {
			t.Fatal(c.name, err)
		}
		_, err := s.load("x")
		switch {
		case c.code == "ok":
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		case err == nil || c.code != "-" && codeOf(err) != c.code:
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := s.Open("x"); err == nil {
			t.Errorf("%s: a sandbox without process 1 was opened", c.name)
		}
		if c.name == "a named pipe" { // somebody may have it open for writing: nothing may wait for them
			if info, err := s.Info("x"); err != nil || info.Status != StatusStopped {
				t.Errorf("%s: %+v, %v", c.name, info, err)
			}
		}
		// It can be deleted all the same. That it may have had a record, of which nobody knows, is said.
		if err := s.Delete("x", nil); (err != nil) != (c.code != "ok") || err != nil && codeOf(err) != fault.RecordUnusable {
			t.Errorf("%s: delete: %v", c.name, err)
		}
		if _, err := s.root.Lstat("x"); err == nil {
			t.Errorf("%s: its directory is still there", c.name)
		}
	}
	if data, err := os.ReadFile(elsewhere); err != nil || string(data) != string(text) {
		t.Errorf("the file elsewhere: %q, %v", data, err)
	}
}

// TestSaveIsWholeOrNothing: a state that is there stays where a new one cannot be written, and none is followed.
func TestSaveIsWholeOrNothing(t *testing.T) {
	s := newStore(t)
	deadSandbox(t, s, "x", &State{PID: 1})
	victim := filepath.Join(t.TempDir(), "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("v"), 0o600), os.Symlink(victim, filepath.Join(s.path, "x", "state.json.new"))); err != nil {
		t.Fatal(err)
	}
	if err := s.save("x", []byte("{}")); err == nil {
		t.Error("it was written through a link")
	}
	if data, err := os.ReadFile(victim); err != nil || string(data) != "v" {
		t.Errorf("the victim is %q, %v", data, err)
	}
	if st, err := s.load("x"); err != nil || st.PID != 1 {
		t.Errorf("the old state: %+v, %v", st, err)
	}
	if err := os.Remove(filepath.Join(s.path, "x", "state.json.new")); err != nil {
		t.Fatal(err)
	}
	saveState(t, s, "x", &State{Version: stateVersion, ID: "x", PID: 2})
	if st, err := s.load("x"); err != nil || st.PID != 2 {
		t.Errorf("the new state: %+v, %v", st, err)
	}
	if names, err := os.ReadDir(filepath.Join(s.path, "x")); err != nil || len(names) != 2 {
		t.Errorf("left %v, %v", names, err)
	}
	if info, err := os.Stat(filepath.Join(s.path, "x", "state.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its mode: %v, %v", info, err)
	}
}

// TestStatuses: what list and state say of each kind of directory, and with which code it cannot be used.
func TestStatuses(t *testing.T) {
	s := newStore(t)
	whose := &owner.Owner{PID: 1 << 22, Name: "gone", StartTime: 1}
	deadSandbox(t, s, "dead", &State{PID: 1 << 22, Name: "pair", Policy: "/p.toml", Owner: whose})
	deadSandbox(t, s, "half", nil)
	deadSandbox(t, s, "made", nil)
	lockOf(t, s, "made")
	deadSandbox(t, s, "forged", &State{PID: os.Getpid()}) // process 1 is said to be this process
	lockOf(t, s, "forged")
	deadSandbox(t, s, "torn", nil)
	if err := s.root.WriteFile("torn/state.json", []byte(`{"version":2,"id":`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ id, status, code string }{
		{"dead", StatusStopped, "sandbox_lost"},
		{"half", StatusStopped, "sandbox_lost"},
		{"made", StatusCreating, "not_ready"},
		{"forged", StatusRunning, "sandbox_lost"}, // the start time is another
		{"torn", StatusStopped, fault.StateChanged},
	} {
		info, err := s.Info(c.id)
		if err != nil || info.Status != c.status {
			t.Errorf("%s: %+v, %v, want %s", c.id, info, err, c.status)
		}
		if _, err := s.Open(c.id); codeOf(err) != c.code || err.(*Error).Hint == "" { //nolint:errorlint // it is one, as codeOf says
			t.Errorf("%s: open: %v, want %s", c.id, err, c.code)
		}
	}
	list, err := s.List()
	if err != nil || len(list) != 5 {
		t.Errorf("list: %v, %v", list, err)
	}
	d, err := s.Describe("dead")
	if err != nil || d.Status != StatusStopped || d.PID != 0 || d.Policy != "/p.toml" || d.Owner.Name != "gone" || d.Bundle != filepath.Join(s.path, "dead") {
		t.Errorf("describe: %+v, %v", d, err)
	}
	for _, id := range []string{"none", "../state", "dead/../dead", ".lock", ""} {
		_, err := s.Info(id)
		_, err2 := s.Describe(id)
		_, err3 := s.Open(id)
		_, err4 := s.Detached(id, "")
		want := "not_found"
		if !validID(id) {
			want = "id_invalid"
		}
		for _, err := range []error{err, err2, err3, err4, s.Delete(id, nil)} {
			if codeOf(err) != want {
				t.Errorf("%q: %v, want %s", id, err, want)
			}
		}
	}
}

// TestForgedProcess1: a state directory that names another process, with its own start time, leads nowhere.
func TestForgedProcess1(t *testing.T) {
	sb := sandboxOf(t, "")
	s, id := sb.store, sb.state.ID
	honest, err := s.root.ReadFile(id + "/state.json")
	if err != nil {
		t.Fatal(err)
	}
	change := func(edit func(*State)) {
		t.Helper()
		st, err := parseState(id, honest)
		if err != nil {
			t.Fatal(err)
		}
		edit(st)
		data, err := json.Marshal(st)
		if err == nil {
			err = errors.Join(s.root.Remove(id+"/state.json"), s.root.WriteFile(id+"/state.json", data, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	start := startTime(t, os.Getpid())
	for _, c := range []struct {
		name string
		edit func(*State)
		code string
	}{
		{"the caller as process 1", func(st *State) { st.PID, st.StartTime = os.Getpid(), start }, fault.StateChanged},
		{"process 1 of the machine", func(st *State) { st.PID, st.StartTime = 1, startTime(t, 1) }, fault.StateChanged},
		{"other rights", func(st *State) { st.Launch.UID++ }, fault.StateChanged},
		{"another filter's consequences", func(st *State) { st.Launch.Execute = []string{"/bin/sh"} }, fault.StateChanged},
		{"checks that have held", func(st *State) { st.Checks = st.Checks[:1] }, fault.StateChanged},
		{"a pid that nobody has", func(st *State) { st.PID = 1 << 22 }, "sandbox_lost"},
		{"another start time", func(st *State) { st.StartTime++ }, "sandbox_lost"},
	} {
		change(c.edit)
		if _, err := s.Open(id); codeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", c.name, err, c.code)
		}
		if c.code == fault.StateChanged {
			if info, err := s.Info(id); err != nil || info.Status != StatusChanged || info.PID != 0 {
				t.Errorf("%s: %+v, %v", c.name, info, err)
			}
			if _, err := s.Describe(id); codeOf(err) != fault.StateChanged {
				t.Errorf("%s: describe: %v", c.name, err)
			}
		}
	}
	// What process 1 holds is found without the directory's help, and believed.
	found := s.find(id)
	if found == nil {
		t.Fatal("process 1 was not found")
	}
	if found.state.PID != sb.state.PID || found.state.Launch.UID != sb.state.Launch.UID || len(found.state.Checks) != len(sb.state.Checks) {
		t.Errorf("found %+v", found.state)
	}
	found.Close()
	if other := s.find("other"); other != nil {
		t.Errorf("found %+v", other.state)
	}
	other := newStore(t)
	if got := other.find(id); got != nil {
		t.Error("a sandbox of another state directory was found")
		got.Close()
	}
	change(func(*State) {})
	again, err := s.Open(id)
	if err != nil {
		t.Fatalf("the honest state: %v", err)
	}
	again.Close()
}

// TestNewStateHasThePlan: what later commands need of the plan is in the state, with what the program may not have left out.
func TestNewStateHasThePlan(t *testing.T) {
	p := policyOf(t, "name = \"n\"\nlimits.wall = \"7s\"\nenv.set = { A = \"b\" }")
	plan := planFor(t, p, p.Limits)
	st := newState("id", plan, &owner.Owner{PID: 3})
	if st.Version != stateVersion || st.ID != "id" || st.Owner.PID != 3 || st.Name != "n" || st.Digest != plan.PolicyDigest || st.Created.IsZero() {
		t.Errorf("%+v", st)
	}
	if st.Launch.Limits.Wall != plan.Exec.Limits.Wall || st.Launch.EnvSet["A"] != "b" || len(st.Launch.Mounts) == 0 {
		t.Errorf("launch: %+v", st.Launch)
	}
	want := unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET
	if st.Launch.Namespaces != want {
		t.Errorf("namespaces %#x, want %#x", st.Launch.Namespaces, want)
	}
	if st.Isolated() {
		t.Error("isolated before a check has held")
	}
	// It survives being written and read.
	data, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	back, err := parseState("id", data)
	if err != nil || !slices.Equal(back.Launch.EnvAllow, st.Launch.EnvAllow) || back.Launch.Limits != st.Launch.Limits || !back.Created.Equal(st.Created) {
		t.Errorf("read back: %+v, %v", back, err)
	}
	if lostHint(st) == lostHint(&State{}) || !strings.Contains(lostHint(st), "process 3") {
		t.Errorf("hints %q, %q", lostHint(st), lostHint(&State{}))
	}
}

// TestSandboxWithALinkForItsState: where somebody has replaced the state of a sandbox that runs, it is said, and delete ends it.
func TestSandboxWithALinkForItsState(t *testing.T) {
	for _, to := range []string{"/nonexistent", "none", "/etc/passwd", "lock"} {
		sb := sandboxOf(t, "")
		s, id := sb.store, sb.state.ID
		path := filepath.Join(s.path, id, "state.json")
		if err := errors.Join(os.Remove(path), os.Symlink(to, path)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Open(id); codeOf(err) != fault.StateChanged {
			t.Errorf("to %s: open: %v", to, err)
		}
		if err := s.Delete(id, nil); err != nil {
			t.Errorf("to %s: delete: %v", to, err)
		}
		if procfs.PidfdAlive(sb.init) {
			t.Errorf("to %s: process 1 lives", to)
		}
	}
}
