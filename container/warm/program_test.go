package warm

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

func TestProgram(t *testing.T) {
	for line, fits := range map[string]bool{
		"python3 -c 1": true, "python3 -c 1 a -b": true, "python3 f.py": true, "python3 /w/f.py -x": true, "python3 d/f.py": true,
		"python3": false, "python3 -c": false, "python3 -": false, "python3 -m x": false, "python3 -I -c 1": false, "python3 -c1": false,
		"python3 ./f.py": false, "python3 ../f.py": false, "python3 d//f.py": false, "python3 d/": false,
	} {
		if why := program(strings.Fields(line)); (why == "") != fits {
			t.Errorf("%s: %q", line, why)
		}
	}
	if program([]string{"python3", ""}) == "" {
		t.Error("an empty name is a program")
	}
}

func TestInterpreter(t *testing.T) {
	for name, is := range map[string]bool{
		"python3": true, "python3.11": true, "/usr/bin/python3": true, "python": false, "python2": false, "python3x": false, "python3.11.sh": false, "sh": false, "": false,
	} {
		if Interpreter(name) != is {
			t.Errorf("%q: %v", name, !is)
		}
	}
	for _, bad := range []map[string]int{{"python3": 0}, {"python3": Max + 1}, {"sh": 1}, {"python3": 1, "python3.8": 1, "python3.9": 1, "python3.10": 1, "python3.11": 1}} {
		if Check(bad) == nil {
			t.Errorf("%v can be kept ready", bad)
		}
	}
	if err := Check(map[string]int{"python3": Max}); err != nil {
		t.Error(err)
	}
}

func TestVariables(t *testing.T) {
	env := []string{"A=1", "PATH=/bin", "PATHS=/x", "TZ=UTC", "LC_ALL=C", "HOME=/h", "API_KEY=secret", "PYTHONUTF8=1", "LANG=C"}
	if got := strings.Join(startVariables(env), " "); got != "LANG=C LC_ALL=C PATH=/bin PYTHONUTF8=1 TZ=UTC" {
		t.Error(got)
	}
	for kv, can := range map[string]bool{
		"PATH=/bin": true, "PYTHONHASHSEED=0": true, "PYTHONPATH=/w": false, "PYTHONHOME=/w": false, "PYTHONINSPECT=1": false, "PYTHONWARNINGS=x": false, "LD_PRELOAD=x": false,
		"PYTHONNEW=1": false,
	} {
		if why := unstartable([]string{"python3", "-S", "-c", "x"}, "x", []string{kv}); (why == "") != can {
			t.Errorf("%s: %q", kv, why)
		}
	}
}

func TestGuardedIsNotStarted(t *testing.T) {
	if why := unstartable([]string{"python3", "-S", "/guard.py", "-c", "x"}, "x", nil); why != guarded {
		t.Error(why)
	}
}

// TestUnfit: a command that differs from the one that an interpreter was started by is not for it.
func TestUnfit(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	as := &forkexec.Command{Path: "/usr/bin/python3", Env: []string{"PATH=/bin"}, Mounts: []forkexec.Mount{{Target: "/tmp"}}, Rlimits: []forkexec.Rlimit{{Resource: 1, Cur: 2}}}
	for name, change := range map[string]func(*forkexec.Command){
		"":           func(*forkexec.Command) {},
		"a terminal": func(c *forkexec.Command) { c.Terminal = &forkexec.Terminal{} },
		"a guard":    func(c *forkexec.Command) { c.Guard = null },
		"files":      func(c *forkexec.Command) { c.Puts = []forkexec.Put{{}} },
		"view of":    func(c *forkexec.Command) { c.Extra.Steps = []forkexec.ViewStep{{}} },
		"denied": func(c *forkexec.Command) {
			c.Mounts = append(slices.Clip(c.Mounts), forkexec.Mount{Target: "/w/answers"})
		},
		"memory":    func(c *forkexec.Command) { c.Limits.Memory = 1 },
		"processes": func(c *forkexec.Command) { c.Rlimits = nil },
		"another":   func(c *forkexec.Command) { c.Path = "/w/python3" },
		"variable":  func(c *forkexec.Command) { c.Env = []string{"PATH=/bin", "LD_PRELOAD=x"} },
		"no pipe":   func(c *forkexec.Command) { c.Stdio[1] = null },
		"options":   func(c *forkexec.Command) { c.Args = []string{"python3", "-B", "x"} },
	} {
		cmd := *as
		cmd.Args, cmd.Env, cmd.Stdio = []string{"python3", "-c", "1"}, []string{"PATH=/bin", "A=1"}, [3]*os.File{r, w, w}
		change(&cmd)
		if why := unfit(&cmd, as); (why == "") != (name == "") || !strings.Contains(why, name) {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// TestSeen: what has changed is not the same, and what can be written is not relied on.
func TestSeen(t *testing.T) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	in, dir := lookup.Root{FD: root}, t.TempDir()
	file, none, link := filepath.Join(dir, "f"), filepath.Join(dir, "none"), filepath.Join(dir, "l")
	begin := func() {
		t.Helper()
		for _, name := range []string{file, none, link} {
			if err := os.RemoveAll(name); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.WriteFile(file, []byte("x"), 0o755), os.Symlink("f", link)); err != nil {
			t.Fatal(err)
		}
	}
	all := func() seen {
		s := seen{}
		for _, name := range []string{file, none} {
			var err error
			if s[name], err = stampOf(in, name); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	begin()
	if !all().same(in) {
		t.Error("nothing has changed")
	}
	for what, change := range map[string]func() error{
		"content": func() error { return os.WriteFile(file, []byte("yy"), 0o755) },
		"a time put back": func() error {
			info, err := os.Stat(file)
			if err != nil {
				return err
			}
			return errors.Join(os.WriteFile(file, []byte("y"), 0o755), os.Chtimes(file, info.ModTime(), info.ModTime()))
		},
		"another file": func() error { return os.Rename(link, file) },
		"one more":     func() error { return os.WriteFile(none, nil, 0o644) },
	} {
		begin()
		before := all()
		time.Sleep(20 * time.Millisecond) // more than the kernel's clock for files
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if before.same(in) {
			t.Errorf("%s: not seen", what)
		}
	}
	if _, err := look(in, nil, dir, nil, time.Now().Add(time.Hour)); err == nil || !strings.Contains(err.Error(), "could write") {
		t.Errorf("a file of the program's: %v", err)
	}
}

func TestOnTheWay(t *testing.T) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	dir := t.TempDir()
	for name, to := range map[string]string{"a": "d/b", "d/b": "/bin/true", "loop": "loop"} {
		if err := os.MkdirAll(filepath.Join(dir, "d"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	list, err := onTheWay(lookup.Root{FD: root}, dir+"/a")
	if err != nil || !slices.Contains(list, dir+"/d/b") || !slices.Contains(list, "/bin/true") || !slices.Contains(list, filepath.Dir(dir)) {
		t.Errorf("%q %v", list, err)
	}
	if _, err := onTheWay(lookup.Root{FD: root}, dir+"/loop"); err == nil {
		t.Error("a loop ends")
	}
}
