package transfer

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/fault"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		".": ".", "a": "a", "./a//b/": "a/b", "a/../b": "b", "..a": "..a", "a/..": ".",
		"": "!", "/": "!", "/a": "!", "..": "!", "../a": "!", "a/../..": "!", "a/../../b": "!", "a\x00b": "!", "\xff": "!",
	} {
		got, err := Clean(in)
		var e *fault.Error
		if want == "!" {
			if !errors.As(err, &e) || e.Code != fault.PathInvalid || !strings.HasPrefix(err.Error(), strconv.Quote(in)+": ") {
				t.Errorf("Clean(%q) = %q, %v", in, got, err)
			}
		} else if err != nil || got != want {
			t.Errorf("Clean(%q) = %q, %v", in, got, err)
		}
	}
}

func TestStaysBelow(t *testing.T) {
	for _, c := range []struct {
		depth  int
		target string
		want   bool
	}{
		{0, "a", true},
		{0, "./a/b", true},
		{0, ".", true},
		{1, "../a", true},
		{2, "../../a", true},
		{1, "..", true},
		{0, "", false},
		{0, "/", false},
		{3, "/a", false},
		{0, "..", false},
		{1, "../..", false},
		{1, "./../../a", false},
		{3, "a/..", false},
		{3, "a/../b", false},
		{3, "../a/../b", false},
	} {
		if got := staysBelow(c.depth, c.target); got != c.want {
			t.Errorf("staysBelow(%d, %q) = %v", c.depth, c.target, got)
		}
	}
}

// FuzzStaysBelow makes two links side by side, one of which the other may go through, and lets the kernel say where they lead.
func FuzzStaysBelow(f *testing.F) {
	f.Add(".", "a/..")
	f.Add("d", "l/../..")
	f.Add("../d", "../d/l")
	f.Fuzz(func(t *testing.T, one, two string) {
		dir := t.TempDir()
		top := filepath.Join(dir, "top")
		if err := os.MkdirAll(filepath.Join(top, "d"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, target := range map[string]string{"l": one, "m": two} {
			if staysBelow(1, target) {
				_ = os.Symlink(target, filepath.Join(top, "d", name)) // some are no path
			}
		}
		for _, name := range []string{"l", "m"} {
			to, err := filepath.EvalSymlinks(filepath.Join(top, "d", name))
			if err == nil && to != top && !strings.HasPrefix(to, top+"/") {
				t.Errorf("%q, %q: %s leads to %s", one, two, name, to)
			}
		}
	})
}

func reader(t *testing.T, dir string) *Reader {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return &Reader{Opener: &Opener{}, Dir: fd}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestCapIsOfAllTogether(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "d/a", "12345")
	write(t, dir, "d/b", "12345")
	r := reader(t, dir)
	for limit, ok := range map[int64]bool{9: false, 10: true, 11: true} {
		var m Memory
		r.Max = limit
		_, err := r.Read("d", &m)
		var e *fault.Error
		if ok && (err != nil || len(m.Files) != 3) || !ok && (!errors.As(err, &e) || e.Code != fault.FileTooLarge) {
			t.Errorf("%d bytes: %v, %d files", limit, err, len(m.Files))
		}
	}
}

func TestDepthAndDescriptorsAreBounded(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, strings.Repeat("d/", maxDepth+2)+"f", "x")
	before, _ := os.ReadDir("/proc/self/fd")
	_, err := reader(t, dir).Read("d", &Memory{})
	var e *fault.Error
	if !errors.As(err, &e) || e.Code != fault.FileTooLarge {
		t.Errorf("got %v", err)
	}
	if after, _ := os.ReadDir("/proc/self/fd"); len(after) > len(before)+1 { // the reader's directory
		t.Errorf("%d descriptors, before %d", len(after), len(before))
	}
}

func TestGlob(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a1", "a2", "b", ".a3", "sub/a4", "sub/deep/a5", "odd[1]"} {
		write(t, dir, name, "")
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "sub2")); err != nil {
		t.Fatal(err)
	}
	r := reader(t, dir)
	for pattern, want := range map[string]string{
		"a*": "a1 a2", "a?": "a1 a2", "*": "a1 a2 b odd[1] sub sub2", ".a*": ".a3", "*/a*": "sub/a4", "sub/*/a5": "sub/deep/a5",
		"none": "none", "no*": "", "sub*/passwd": "sub2/passwd", "sub2/*": "", "./a1": "a1",
	} {
		got, err := r.Glob(pattern)
		if pattern == "sub*/passwd" {
			want = "" // no link is followed
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %q, %v", pattern, got, err)
		}
	}
	for _, bad := range []string{"", "/*", "../*", "a[", "*/a["} {
		if got, err := r.Glob(bad); err == nil {
			t.Errorf("%q: %q", bad, got)
		}
	}
}

func TestHostSink(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write(t, from, "d/one/x", "X")
	write(t, from, "d/two/deep/y", "Y")
	write(t, from, "d/z", "Z")
	if err := os.Symlink("../z", filepath.Join(from, "d/one/l")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(from, "d/two"), 0o777); err != nil {
		t.Fatal(err)
	}
	parent, err := os.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	read := func(name, as string) error {
		s := &HostSink{Parent: parent, Name: as}
		_, err := reader(t, from).Read(name, s)
		return errors.Join(err, s.Close())
	}
	if err := read("d", "copy"); err != nil {
		t.Fatal(err)
	}
	var seen []string
	err = filepath.WalkDir(to, func(p string, d fs.DirEntry, err error) error {
		info, ierr := d.Info()
		seen = append(seen, fmt.Sprint(strings.TrimPrefix(p, to), " ", info.Mode()))
		return errors.Join(err, ierr)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/copy/one/x -rw-r--r--", "/copy/one/l Lrwxrwxrwx", "/copy/two/deep/y -rw-r--r--", "/copy/z -rw-r--r--"} {
		if !slices.Contains(seen, want) {
			t.Errorf("%q is not in %q", want, seen)
		}
	}
	if err := read("d", "copy"); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a directory that is there: %v", err)
	}
	// A file replaces what has its name, and a link is not followed.
	write(t, to, "outside", "kept")
	if err := os.Symlink("outside", filepath.Join(to, "l")); err != nil {
		t.Fatal(err)
	}
	if err := read("d/z", "l"); err != nil {
		t.Fatal(err)
	}
	// A pipe, a directory and the name of a device stay what they are.
	if err := os.Symlink("/proc/self/fd/1", filepath.Join(to, "stdout")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(to, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"stdout", "pipe", "copy"} {
		before, _ := os.Lstat(filepath.Join(to, name))
		err := read("d/z", name)
		e, _ := errors.AsType[*fault.Error](err)
		after, lerr := os.Lstat(filepath.Join(to, name))
		if e == nil || e.Code != fault.OutputExists || lerr != nil || !os.SameFile(before, after) {
			t.Errorf("%s: %v, %v", name, err, lerr)
		}
		tar := &TarSink{Parent: parent, Name: name}
		if err := tar.Dir(".", 0o755); err == nil {
			t.Errorf("an archive took the place of %s", name)
		}
	}
	if data, _ := os.ReadFile(filepath.Join(to, "outside")); string(data) != "kept" {
		t.Errorf("the link was followed: %q", data)
	}
}

// A program's file is opened with its rights: what root alone may read stays closed.
func TestOpenerHasTheProgramsRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root could do otherwise")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "open", "x")
	write(t, dir, "shut", "x")
	if err := os.Chmod(filepath.Join(dir, "shut"), 0o600); err != nil {
		t.Fatal(err)
	}
	for up := dir; up != "/"; up = filepath.Dir(up) {
		if info, err := os.Stat(up); err != nil || info.Mode()&1 == 0 {
			_ = os.Chmod(up, info.Mode()|1)
		}
	}
	o, err := NewOpener(12345, 12345)
	if err != nil {
		t.Fatal(err)
	}
	r := reader(t, dir)
	r.Opener = o
	if _, err := r.Read("open", &Memory{}); err != nil {
		t.Error(err)
	}
	if _, err := r.Read("shut", &Memory{}); !errors.Is(err, unix.EACCES) {
		t.Errorf("got %v", err)
	}
	if _, err := os.ReadFile(filepath.Join(dir, "shut")); err != nil { // our own threads are as they were
		t.Error(err)
	}
}

// rightsOfThreads are the lines of all threads' status that say what each may do.
func rightsOfThreads(t *testing.T) map[string]bool {
	t.Helper()
	all, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(all) == 0 {
		t.Fatal(err, all)
	}
	found := map[string]bool{}
	for _, name := range all {
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		has := ""
		for line := range strings.Lines(string(data)) {
			if key, _, _ := strings.Cut(line, ":"); slices.Contains([]string{"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapAmb"}, key) {
				has += line
			}
		}
		found[has] = true
	}
	return found
}

// A thread that lends a program's rights has its own again afterwards, and no thread that is made meanwhile has the program's.
func TestLentRightsAreTakenBack(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has others to lend")
	}
	dir := t.TempDir()
	write(t, dir, "shut", "x")
	if err := os.Chmod(filepath.Join(dir, "shut"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := rightsOfThreads(t)
	if len(before) != 1 {
		t.Fatalf("the threads differ to begin with: %v", before)
	}
	var all sync.WaitGroup
	for range 8 {
		o, err := NewOpener(12345, 12345)
		if err != nil {
			t.Fatal(err)
		}
		r := reader(t, dir)
		r.Opener = o
		all.Go(func() {
			for range 300 {
				if _, err := r.Read("shut", &Memory{}); !errors.Is(err, unix.EACCES) {
					t.Errorf("with a program's rights: %v", err)
				}
			}
		})
		all.Go(func() {
			for range 300 {
				if _, err := os.ReadFile(filepath.Join(dir, "shut")); err != nil {
					t.Error(err)
				}
				runtime.GC()
			}
		})
		all.Go(func() { _ = exec.Command("sleep", "0.1").Run() }) // takes a thread
	}
	all.Wait()
	if after := rightsOfThreads(t); !maps.Equal(before, after) {
		t.Errorf("the threads have %v, and had %v", after, before)
	}
}
