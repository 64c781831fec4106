package container

import (
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/flock"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/record"
)

func startTime(t *testing.T, pid int) uint64 {
	t.Helper()
	start, err := procfs.StartTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	return start
}

func namesOf(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestSweepTakesTheDeadAlone: a sweep removes what has no process, whatever a creator or a remover that was killed has left of it.
func TestSweepTakesTheDeadAlone(t *testing.T) {
	s := newStore(t)
	outside := filepath.Join(t.TempDir(), "outside")
	at := func(name string) string { return filepath.Join(s.path, name) }
	made := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	made(os.Mkdir(outside, 0o700), os.WriteFile(filepath.Join(outside, "keep"), nil, 0o600))

	deadSandbox(t, s, "whole", &State{PID: 1 << 22})
	deadSandbox(t, s, "half", nil)
	made(os.Mkdir(at("no-lock"), 0o700))
	deadSandbox(t, s, "claimed", nil) // by a remover that was killed
	made(os.Truncate(at("claimed/lock"), claimed))
	deadSandbox(t, s, "linked", nil)
	made(os.Symlink(outside, at("linked/execs")), os.Symlink(outside, at("linked/runc")))
	deadSandbox(t, s, "deep", nil)
	made(os.MkdirAll(at("deep/a/b/c/d"), 0o700), os.WriteFile(at("deep/a/b/c/d/f"), nil, 0o000))
	made(os.Mkdir(at(gonePrefix+"x-1"), 0o700), os.WriteFile(at(gonePrefix+"x-1/f"), nil, 0o600)) // a remover was killed
	made(os.Symlink(outside, at(gonePrefix+"link")))

	deadSandbox(t, s, "alive", &State{PID: os.Getpid()})
	lockOf(t, s, "alive")
	deadSandbox(t, s, "creating", nil)
	lockOf(t, s, "creating")
	made(os.WriteFile(at("a-file"), nil, 0o600), os.Symlink(outside, at("a-link")), os.Mkdir(at(".base"), 0o700), os.Mkdir(at("-odd"), 0o700))

	swept, err := s.Sweep()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(swept)
	if got, want := strings.Join(swept, " "), "claimed deep half linked no-lock whole"; got != want {
		t.Errorf("swept %s, want %s", got, want)
	}
	if got, want := strings.Join(namesOf(t, s.path), " "), "-odd .base .lock a-file a-link alive creating"; got != want {
		t.Errorf("left %s, want %s", got, want)
	}
	if names := namesOf(t, outside); len(names) != 1 {
		t.Errorf("outside: %v", names)
	}
	if swept, err := s.Sweep(); err != nil || len(swept) != 0 {
		t.Errorf("a second sweep: %v, %v", swept, err)
	}
}

// TestOneRemover: of many that find a sandbox dead one removes it, and the others say nothing of it.
func TestOneRemover(t *testing.T) {
	s := newStore(t)
	for round := range 20 {
		deadSandbox(t, s, "x", &State{PID: 1 << 22})
		var mu sync.Mutex
		var all []string
		var group sync.WaitGroup
		for i := range 6 {
			group.Go(func() {
				var err error
				if i == 0 {
					if err = s.Delete("x", nil); codeOf(err) == "not_found" {
						err = nil // a sweep was faster
					}
				} else {
					var swept []string
					swept, err = s.Sweep()
					mu.Lock()
					all = append(all, swept...)
					mu.Unlock()
				}
				if err != nil {
					t.Error(round, i, err)
				}
			})
		}
		group.Wait()
		if len(all) > 1 {
			t.Errorf("round %d: %d sweeps removed it", round, len(all))
		}
		if names := namesOf(t, s.path); len(names) != 1 || names[0] != ".lock" {
			t.Fatalf("round %d: left %v", round, names)
		}
	}
}

// TestClaim: who may remove, while who else has which lock.
func TestClaim(t *testing.T) {
	s := newStore(t)
	deadSandbox(t, s, "x", nil)
	if c, err := s.claim("gone", nil); c != nil || err != nil {
		t.Errorf("of nothing: %v, %v", c, err)
	}
	c, err := s.claim("x", nil)
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	if s.alive("x") || !s.leaving("x") || s.free("x") {
		t.Errorf("claimed: alive %v, leaving %v, free %v", s.alive("x"), s.leaving("x"), s.free("x"))
	}
	if second, err := s.claim("x", nil); second != nil || err != nil {
		t.Errorf("a second claim: %v, %v", second, err)
	}
	c.release()
	if s.alive("x") || s.leaving("x") || !s.free("x") {
		t.Errorf("released: alive %v, leaving %v, free %v", s.alive("x"), s.leaving("x"), s.free("x"))
	}
	lock := lockOf(t, s, "x")
	if err := lock.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if !s.alive("x") {
		t.Error("process 1 has the lock, and is not seen")
	}
	if c, err := s.claim("x", nil); c != nil || err != nil {
		t.Errorf("of a sandbox that lives: %v, %v", c, err)
	}
	lock.Close()

	// Who has locked the directory, for a delete with a key, is the only one that may claim.
	dir, err := s.root.Open("x")
	if err == nil {
		err = flock.Lock(dir, unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	if c, err := s.claim("x", nil); c != nil || err != nil {
		t.Errorf("of a locked directory: %v, %v", c, err)
	}
	mine, err := s.claim("x", dir)
	if err != nil || mine == nil {
		t.Fatal(mine, err)
	}
	if err := s.remove("x", mine, nil, "", nil); err != nil {
		t.Error(err)
	}
}

// TestIDIsFreeWhenItsSandboxIsGone: a create waits for the remover of the last sandbox of that id, and for nobody else.
func TestIDIsFreeWhenItsSandboxIsGone(t *testing.T) {
	s := newStore(t)
	deadSandbox(t, s, "x", nil)
	if _, err := s.reserve("x"); codeOf(err) != "id_in_use" {
		t.Errorf("a dead sandbox that nobody removes: %v", err)
	}
	c, err := s.claim("x", nil)
	if err != nil || c == nil {
		t.Fatal(c, err)
	}
	done := make(chan error, 1)
	go func() {
		lock, err := s.reserve("x")
		if err == nil {
			lock.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	if err := s.remove("x", c, nil, "", nil); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := s.reserve("no/such"); codeOf(err) != "state_unusable" {
		t.Errorf("a directory that cannot be made: %v", err)
	}
}

// TestGone: an id whose directory is another by now belongs to another sandbox.
func TestGone(t *testing.T) {
	s := newStore(t)
	deadSandbox(t, s, "x", nil)
	at, err := s.root.Lstat("x")
	if err != nil {
		t.Fatal(err)
	}
	if s.gone("x", at) {
		t.Error("gone while it is there")
	}
	if err := s.root.Rename("x", "kept"); err != nil { // so that its inode is not given away
		t.Fatal(err)
	}
	if !s.gone("x", at) {
		t.Error("there while it is gone")
	}
	deadSandbox(t, s, "x", nil)
	if !s.gone("x", at) {
		t.Error("another sandbox was taken for it")
	}
	if c, err := s.claimOrGone("x", at, nil); c != nil || err != nil {
		t.Errorf("claimed another sandbox: %v, %v", c, err)
	}
}

// TestRestore: what could not be removed has its id again, unless that has been given away.
func TestRestore(t *testing.T) {
	s := newStore(t)
	deadSandbox(t, s, "x", nil)
	gone, err := s.rename("x")
	if err != nil || !strings.HasPrefix(gone, gonePrefix+"x-") {
		t.Fatal(gone, err)
	}
	if ids, err := s.ids(); err != nil || len(ids) != 0 {
		t.Errorf("ids %v, %v", ids, err)
	}
	s.restore(gone, "x")
	if ids, err := s.ids(); err != nil || len(ids) != 1 {
		t.Errorf("restored: %v, %v", ids, err)
	}
	gone, err = s.rename("x")
	if err != nil {
		t.Fatal(err)
	}
	deadSandbox(t, s, "x", &State{Name: "new"})
	s.restore(gone, "x")
	if st, err := s.load("x"); err != nil || st.Name != "new" {
		t.Errorf("the new sandbox: %+v, %v", st, err)
	}
	if err := s.emptyGone(); err != nil {
		t.Error(err)
	}
	if names := namesOf(t, s.path); len(names) != 2 {
		t.Errorf("left %v", names)
	}
	long := strings.Repeat("x", maxID)
	deadSandbox(t, s, long, nil)
	if gone, err := s.rename(long); err != nil || gone != long && !strings.HasPrefix(gone, gonePrefix) {
		t.Errorf("the longest id: %s, %v", gone, err)
	}
}

// TestForgedGroups: the list of control groups to be removed names nothing else, and what it names otherwise stops the removal.
func TestForgedGroups(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "sandboxrun-00000000-x")
	if err := os.MkdirAll(filepath.Join(victim, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := newStore(t)
	for _, c := range []struct {
		name, list string
		refused    bool
	}{
		{"an empty list", "\n\n", false},
		{"one that is gone", "/sys/fs/cgroup/sandboxrun-00000000-no-such\n", false},
		{"a directory of that name that is no control group", victim + "\n", true},
		{"the whole machine's", "/sys/fs/cgroup\n", true},
		{"a way out", "/sys/fs/cgroup/sandboxrun-0-x/../..\n", true},
		{"no absolute path", "sandboxrun-00000000-x\n", true},
	} {
		deadSandbox(t, s, "x", nil)
		if err := s.root.WriteFile("x/"+groupsFile, []byte(c.list), 0o600); err != nil {
			t.Fatal(err)
		}
		err := s.Delete("x", nil)
		if (err != nil) != c.refused {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.refused {
			if swept, err := s.Sweep(); err == nil || len(swept) != 0 {
				t.Errorf("%s: a sweep: %v, %v", c.name, swept, err)
			}
			if err := errors.Join(s.root.Remove("x/"+groupsFile), s.Delete("x", nil)); err != nil {
				t.Errorf("%s: without the list: %v", c.name, err)
			}
		}
	}
	if names := namesOf(t, victim); len(names) != 1 {
		t.Errorf("the victim has %v", names)
	}
}

// TestSweepGoesOn: one sandbox that cannot be removed keeps nobody from removing the others.
func TestSweepGoesOn(t *testing.T) {
	s := newStore(t)
	for _, id := range []string{"a", "b", "c"} {
		deadSandbox(t, s, id, nil)
	}
	if err := s.root.WriteFile("b/"+groupsFile, []byte("/etc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	swept, err := s.Sweep()
	if err == nil || !strings.Contains(err.Error(), `"b"`) || !slices.Equal(swept, []string{"a", "c"}) {
		t.Errorf("swept %v, %v", swept, err)
	}
}

// TestDeleteOfWhatLivesUnseen: a sandbox whose lock is held and whose process 1 cannot be found is not forgotten.
func TestDeleteOfWhatLivesUnseen(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for ten seconds")
	}
	t.Parallel()
	s := newStore(t)
	deadSandbox(t, s, "x", &State{PID: 1 << 22})
	lockOf(t, s, "x")
	if err := s.Delete("x", nil); codeOf(err) != "sandbox_unavailable" {
		t.Errorf("deleted: %v", err)
	}
	if _, err := s.root.Lstat("x/state.json"); err != nil {
		t.Error(err)
	}
}

func TestRemovedBefore(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := removedBefore("x", nil); err != nil {
		t.Error(err)
	}
	if err := removedBefore("x", key); codeOf(err) != fault.RecordUnusable {
		t.Errorf("a record that was to be signed: %v", err)
	}
}

func TestCgroupName(t *testing.T) {
	a, b := cgroupName("/run/a", "x"), cgroupName("/run/b", "x")
	if a == b || !strings.HasPrefix(a, "sandboxrun-") || !strings.HasSuffix(a, "-x") || a != cgroupName("/run/a", "x") {
		t.Errorf("%s, %s", a, b)
	}
}

// TestEndOf says why a sandbox that nobody deleted has ended.
func TestEndOf(t *testing.T) {
	s := newStore(t)
	self := &owner.Owner{PID: os.Getpid(), StartTime: startTime(t, os.Getpid())}
	for _, c := range []struct {
		name string
		of   *owner.Owner
		want string
	}{
		{"nobody's", nil, record.Lost},
		{"of one that lives", self, record.Lost},
		{"of one that has ended", &owner.Owner{PID: 1 << 22, StartTime: 1}, record.OwnerEnded},
		{"of one whose pid another has", &owner.Owner{PID: self.PID, StartTime: self.StartTime + 1}, record.OwnerEnded},
		{"of another boot", &owner.Owner{PID: self.PID, StartTime: self.StartTime, BootID: "x"}, record.OwnerEnded},
	} {
		before := owner.Owner{}
		if c.of != nil {
			before = *c.of
		}
		if got := s.endOf(&State{Owner: c.of}); got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
		if c.of != nil && *c.of != before {
			t.Errorf("%s: the state was changed: %+v", c.name, c.of)
		}
	}
}
