// Package integration tests the built command from outside: its contract (testdata/script), what must never happen
// (cases, escapes), that nothing is left behind (leaks), and that real work gets done (jobs).
package integration

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Environment that steers these tests.
const (
	envBinary  = "SANDBOXRUN_BIN"       // a binary to test, instead of one that is built here
	envUser    = "SANDBOXRUN_TEST_USER" // as root: the unprivileged user whose flavour of each test is run too
	envRequire = "SANDBOXRUN_REQUIRE"   // comma-separated facts of need, whose absence is a failure and no skip
	envCases   = "SANDBOXRUN_CASES"     // the directory of the shared case scripts
	envShared  = "SANDBOXRUN_TEST_DIR"  // set by this process for its user flavour

	envThrowaway = "SANDBOXRUN_THROWAWAY" // not empty: this machine is thrown away afterwards, and its settings may be changed
)

// world is what the tests of this process have in common.
type world struct {
	binary  string     // the command under test, executable by everybody
	shared  string     // a directory that everybody can read: the binary, this test binary, testdata, examples
	cases   string     // the shared case scripts, or ""
	scratch string     // the caller's own directory
	other   *user.User // as root: the unprivileged user, or nil
	uid     int
	gid     int
}

var w world

// skipReason is the last reason that need skipped a test for.
var skipReason string

func TestMain(m *testing.M) {
	flag.Parse()
	cleanup, err := setUp()
	if err != nil {
		fmt.Fprintln(os.Stderr, "set up integration tests:", err)
		cleanup()
		os.Exit(1)
	}
	before := nullDevice()
	status := m.Run()
	cleanup()
	if after := nullDevice(); after != before {
		fmt.Fprintln(os.Stderr, "a test has changed the machine's null device: it was", before, "and is", after)
		status = 1
	}
	os.Exit(status)
}

// nullDevice is whose the machine's null device is: the first thing that a root launcher's slip would change.
func nullDevice() string {
	var st syscall.Stat_t
	if err := syscall.Stat(os.DevNull, &st); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d:%d %o", st.Uid, st.Gid, st.Mode)
}

// setUp makes the shared directory, or takes over the one of the process that started this one as another user.
func setUp() (func(), error) {
	w.uid, w.gid = os.Getuid(), os.Getgid()
	if dir := os.Getenv(envShared); dir != "" {
		w.shared, w.binary, w.scratch = dir, filepath.Join(dir, "sandboxrun"), os.Getenv("TMPDIR")
		return func() {}, nil
	}
	if !testing.Verbose() && flag.Lookup("test.list").Value.String() != "" {
		return func() {}, nil
	}
	dir, err := os.MkdirTemp("", "sandboxrun-test-")
	cleanup := func() { removeAll(dir) }
	if err != nil {
		return func() {}, err
	}
	w.shared, w.binary, w.scratch = dir, filepath.Join(dir, "sandboxrun"), filepath.Join(dir, "own")
	if name := os.Getenv(envUser); w.uid == 0 && name != "" {
		if w.other, err = user.Lookup(name); err != nil {
			return cleanup, fmt.Errorf("%s: %w", envUser, err)
		}
	}
	steps := []func() error{
		func() error { return os.Chmod(dir, 0o755) },
		func() error { return os.Mkdir(w.scratch, 0o755) },
		func() error { return os.Setenv("TMPDIR", w.scratch) },
		build, findCases,
		func() error { return copyTree("testdata", filepath.Join(dir, "integration", "testdata")) },
		func() error { return copyTree(filepath.Join("..", "examples"), filepath.Join(dir, "examples")) },
		func() error { return copyTree(filepath.Join("..", "clients"), filepath.Join(dir, "clients")) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return cleanup, err
		}
	}
	return cleanup, nil
}

// build leaves the command in the shared directory.
func build() error {
	from := os.Getenv(envBinary)
	if from == "" {
		if out, err := exec.Command(filepath.Join("..", "scripts", "build")).CombinedOutput(); err != nil {
			return fmt.Errorf("scripts/build: %w\n%s", err, out)
		}
		from = filepath.Join("..", "bin", "sandboxrun")
	}
	return copyProgram(from, w.binary)
}

// findCases looks for the shared case scripts: beside the repository, unless the environment names a place.
func findCases() error {
	dir := os.Getenv(envCases)
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "cases")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "lib.sh")); err == nil {
		w.cases = dir
	}
	return nil
}

// copyProgram copies a program so that everybody can execute it.
func copyProgram(from, to string) error {
	const mode = 0o755
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, data, mode); err != nil {
		return err
	}
	return os.Chmod(to, mode)
}

// copyTree copies a directory so that everybody can read it; one that does not exist is no error.
func copyTree(from, to string) error {
	if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(to, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.Type()&os.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.Chmod(p, info.Mode().Perm()|0o444|info.Mode().Perm()&0o100>>3|info.Mode().Perm()&0o100>>6)
	})
}

// removeAll removes what programs may have made hard to remove.
func removeAll(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	_ = exec.Command("chmod", "-R", "u+rwX", dir).Run()
	_ = os.RemoveAll(dir)
}

// need skips the test unless the machine has a fact, which the caller has probed. Facts that the environment requires
// fail the test instead, so that a run which should have tested everything cannot pass by skipping.
func need(t *testing.T, fact string, has bool) {
	t.Helper()
	if has {
		return
	}
	if required(fact) {
		t.Fatalf("this machine has no %s, and %s requires it", fact, envRequire)
	}
	skipReason = "this machine has no " + fact
	t.Skip(skipReason)
}

// required says whether the environment requires a fact.
func required(fact string) bool {
	for name := range strings.SplitSeq(os.Getenv(envRequire), ",") {
		if strings.TrimSpace(name) == fact {
			return true
		}
	}
	return false
}

// needProgram skips the test where a program is not installed for everybody.
func needProgram(t *testing.T, name string) {
	t.Helper()
	need(t, name, installed(name))
}

// installed says whether a program is in the directories that sandboxes show.
func installed(name string) bool {
	for _, dir := range []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}

func needRoot(t *testing.T) {
	t.Helper()
	need(t, "root", w.uid == 0)
}

// ids are the numbers of the unprivileged user.
func (w world) ids() (uid, gid int) {
	if w.other == nil {
		return w.uid, w.gid
	}
	uid, _ = strconv.Atoi(w.other.Uid)
	gid, _ = strconv.Atoi(w.other.Gid)
	return uid, gid
}
