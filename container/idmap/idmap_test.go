package idmap

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
)

func TestProgramIDs(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		id, err := ProgramID()
		if err != nil || id < FirstID || id > lastID || seen[id] {
			t.Fatal(id, err)
		}
		seen[id] = true
	}
}

// What can be idmapped and what cannot, with the reason.
func TestIdmap(t *testing.T) {
	if !MachineRoot() || NotApart() != "" {
		t.Skip("only the machine's root can")
	}
	dir := t.TempDir()
	if _, err := Tester(FirstID, 0, 0)(dir); err != nil {
		t.Skip(err)
	}
	_, err := Tester(FirstID, 0, 0)("/proc")
	if err == nil || !strings.Contains(err.Error(), "does not allow it") {
		t.Error(err)
	}
	if _, err := Tester(FirstID, 0, 0)(filepath.Join(dir, "gone")); err != nil {
		t.Errorf("that nothing is there is said by others: %v", err)
	}
}

func TestUserNamespace(t *testing.T) {
	if !MachineRoot() || NotApart() != "" {
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
