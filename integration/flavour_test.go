package integration

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/container/diagnose"
)

// flavours runs a test, each time with a launcher of its own, as root and as an unprivileged user where this process is root, else as the user that it is.
// The user's flavour is this very test binary, started again as that user: so everything that the test does, not only
// the launcher, is done without privilege.
func flavours(t *testing.T, test func(b *box)) {
	t.Helper()
	if w.uid != 0 {
		t.Run("user", func(t *testing.T) {
			t.Cleanup(func() {
				if t.Skipped() { // for again, in the process that started this one
					_ = os.WriteFile(filepath.Join(w.scratch, skipFile), []byte(skipReason), 0o644)
				}
			})
			needUserns(t)
			test(newBox(t))
		})
		return
	}
	t.Run("root", func(t *testing.T) {
		needUserns(t)
		needIdmap(t)
		test(newBox(t))
	})
	t.Run("user", func(t *testing.T) {
		need(t, "testuser", w.other != nil)
		again(t)
	})
}

// skipFile says to the process that started this one why this flavour was skipped.
const skipFile = "skipped"

// needUserns probes for what every sandbox is made of.
func needUserns(t *testing.T) {
	t.Helper()
	if err := usernsProblem(); err != nil {
		t.Log(err)
		need(t, "userns", false)
	}
}

var usernsProblem = sync.OnceValue(func() error {
	if err := diagnose.Machine(); err != nil {
		return err
	}
	return nil
})

// testBinary is a copy of this test binary that the other user can execute.
var testBinary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(w.shared, "integration.test")
	return path, copyProgram("/proc/self/exe", path)
})

// again runs the current test in a process of the unprivileged user.
func again(t *testing.T) {
	t.Helper()
	self, err := testBinary()
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(t.Name(), "/")
	uid, gid := w.ids()
	env := []string{"PATH=" + systemPath, "LANG=C.UTF-8", envShared + "=" + w.shared, envRequire + "=" + os.Getenv(envRequire)}
	own, err := os.MkdirTemp(w.shared, "user-"+name+"-") //nolint:usetesting // one that the user can reach
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(own, 0o755); err != nil {
		t.Fatal(err)
	}
	for variable, dir := range map[string]string{"HOME": "home", "XDG_RUNTIME_DIR": "run", "TMPDIR": "tmp"} {
		dir := filepath.Join(own, dir)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		env = append(env, variable+"="+dir)
	}
	run := "^" + name + "$"
	if parts := strings.SplitN(flag.Lookup("test.run").Value.String(), "/", 3); len(parts) == 3 {
		run += "/^user$/" + parts[2]
	}
	args := []string{"-test.run=" + run, "-test.timeout=5m"}
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.Command(self, args...)
	cmd.Dir, cmd.Env = filepath.Join(w.shared, "integration"), env
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, Pdeathsig: syscall.SIGKILL,
	}
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s as uid %d: %v\n%s", name, uid, err, out)
		return
	}
	if testing.Verbose() {
		t.Logf("%s", out)
	}
	if reason, err := os.ReadFile(filepath.Join(own, "tmp", skipFile)); err == nil {
		t.Skipf("%s", reason)
	}
}

// systemPath is where the programs are that every user and every sandbox has.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
