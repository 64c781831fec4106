package container

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

func TestProgramIDs(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		id, err := programID()
		if err != nil || id < firstProgramID || id > lastProgramID || seen[id] {
			t.Fatal(id, err)
		}
		seen[id] = true
	}
}

// No two sandboxes of a state directory have programs of one id.
func TestReserveID(t *testing.T) {
	s, err := OpenStore(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plan := &spec.Plan{Exec: spec.Exec{UID: firstProgramID, OwnID: true}}
	for i, name := range []string{"one", "two"} {
		lock, err := s.reserve(name)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		err = s.reserveID(name, plan)
		var e *Error
		if (i == 0) != (err == nil) || i == 1 && (!errors.As(err, &e) || e.Hint == "") {
			t.Error(name, err)
		}
	}
	plan.Exec.OwnID = false
	if err := s.reserveID("two", plan); err != nil {
		t.Error(err)
	}
}

// What can be idmapped and what cannot, with the reason.
func TestIdmap(t *testing.T) {
	if !machineRoot() || notApart() != "" {
		t.Skip("only the machine's root can")
	}
	dir := t.TempDir()
	if _, err := idmapper(firstProgramID, 0, 0)(dir); err != nil {
		t.Skip(err)
	}
	_, err := idmapper(firstProgramID, 0, 0)("/proc")
	if err == nil || !strings.Contains(err.Error(), "does not allow it") {
		t.Error(err)
	}
	if _, err := idmapper(firstProgramID, 0, 0)(filepath.Join(dir, "gone")); err != nil {
		t.Errorf("that nothing is there is said by others: %v", err)
	}
}

func TestUserNamespace(t *testing.T) {
	if !machineRoot() || notApart() != "" {
		t.Skip("only the machine's root can")
	}
	before := len(children(t))
	f, err := forkexec.UserNamespace("0 5 1\n7 7 3\n", "0 6 1\n")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Ino == initialUserNamespace || st.Ino == 0 {
		t.Error(err, st.Ino)
	}
	if after := len(children(t)); after != before {
		t.Errorf("%d children, were %d", after, before)
	}
	if f, err := forkexec.UserNamespace("0 5 1\n0 6 1\n", "0 6 1\n"); !errors.Is(err, unix.EINVAL) {
		t.Error(f, err)
	}
}

func children(t *testing.T) []string {
	t.Helper()
	var list []string
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		data, err := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		if err != nil {
			t.Skip(err)
		}
		for pid := range strings.FieldsSeq(string(data)) {
			if _, err := strconv.Atoi(pid); err == nil {
				list = append(list, pid)
			}
		}
	}
	return list
}
