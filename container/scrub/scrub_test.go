package scrub

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/record"
)

const key = "sk-0123456789abcdef"

func scrubber() *Scrubber {
	return &Scrubber{Redactor: record.NewRedactor(map[string]string{"A_KEY": key})}
}

func write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(name, uint32(mode)); err != nil { // with the setuid bit
		t.Fatal(err)
	}
	return name
}

func stat(t *testing.T, name string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		t.Fatal(err)
	}
	return st
}

func scrub(t *testing.T, paths ...string) *Report {
	t.Helper()
	r, err := scrubber().Scrub(paths)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestKept: the content loses its values; mode, times and attributes stay, and a binary file keeps its length.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("x", 256<<10-5) // a value lies over the end of a buffer
	old := time.Unix(1e9, 123456789)
	for name, f := range map[string]struct {
		text, want string
		mode       os.FileMode
	}{
		"text":      {"a " + key + " b\n", "a <A_KEY> b\n", 0o640},
		"read-only": {key + key, "<A_KEY><A_KEY>", 0o400},
		"setuid":    {key, "<A_KEY>", 0o4755},
		"over":      {long + key + long, long + "<A_KEY>" + long, 0o600},
		"binary":    {"\x00" + key + "\x01", "\x00<A_KEY>************\x01", 0o600},
		"nothing":   {"as it was", "as it was", 0o600},
		"empty":     {"", "", 0o600},
		"part":      {key[:18], key[:18], 0o600},
	} {
		p := write(t, filepath.Join(dir, name), f.text, f.mode)
		attributes := unix.Setxattr(p, "user.note", []byte("of "+key), 0) == nil
		if err := os.Chtimes(p, old, old); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
		before := stat(t, p)
		if r := scrub(t, dir); len(r.Left) > 0 {
			t.Errorf("%s: left: %v", name, r.Left)
		}
		after, parent := stat(t, p), stat(t, dir)
		if after.Mode != before.Mode || after.Mtim != before.Mtim || after.Atim != before.Atim || after.Uid != before.Uid || after.Gid != before.Gid {
			t.Errorf("%s: mode, times or owner: %+v, were %+v", name, after, before)
		}
		if parent.Mtim.Sec != old.Unix() {
			t.Errorf("%s: the directory's time has changed", name)
		}
		if f.text == f.want != (after.Ino == before.Ino) {
			t.Errorf("%s: inode %d, was %d", name, after.Ino, before.Ino)
		}
		if err := unix.Chmod(p, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(p); err != nil || string(got) != f.want {
			t.Errorf("%s: %.80q, %v", name, got, err)
		}
		note := make([]byte, 100)
		if n, err := unix.Getxattr(p, "user.note", note); attributes && (err != nil || string(note[:n]) != "of <A_KEY>") {
			t.Errorf("%s: attribute %q, %v", name, note[:max(n, 0)], err)
		}
		_ = os.Remove(p)
	}
}

// TestSparse: holes stay holes, before, between and behind values.
func TestSparse(t *testing.T) {
	const hole = 8 << 20
	p := write(t, filepath.Join(t.TempDir(), "sparse"), "", 0o600)
	f, err := os.OpenFile(p, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range []int64{hole, 3 * hole} {
		if _, err := f.WriteAt([]byte(key), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(4 * hole); err != nil {
		t.Fatal(err)
	}
	before := stat(t, p)
	r := scrub(t, p)
	after := stat(t, p)
	if r.Replaced != 2 || after.Size != 4*hole || after.Blocks > before.Blocks {
		t.Errorf("%+v, %d blocks of %d, size %d", r, after.Blocks, before.Blocks, after.Size)
	}
	got, err := os.ReadFile(p)
	want := make([]byte, 4*hole)
	for _, at := range []int64{hole, 3 * hole} {
		copy(want[at:], "<A_KEY>************")
	}
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the content is not what it should be: %v", err)
	}
}

// TestLinks: hard links stay together, also over several paths, and those that were not named are counted; symlinks are not followed.
func TestLinks(t *testing.T) {
	top := t.TempDir()
	a := write(t, filepath.Join(top, "one/a"), key, 0o600)
	outside := write(t, filepath.Join(top, "outside"), key, 0o600)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Link(a, filepath.Join(top, "one/b")))
	must(os.Mkdir(filepath.Join(top, "two"), 0o700))
	must(os.Link(a, filepath.Join(top, "two/c")))
	must(os.Link(outside, filepath.Join(top, "two/d")))
	must(os.Symlink(outside, filepath.Join(top, "one/to-file")))
	must(os.Symlink("../two", filepath.Join(top, "one/to-dir")))
	must(os.Symlink(key, filepath.Join(top, "two/"+"named")))
	must(unix.Mkfifo(filepath.Join(top, "one/pipe"), 0o600))
	r := scrub(t, filepath.Join(top, "one"), filepath.Join(top, "two"))
	nodes := map[uint64]bool{}
	for _, name := range []string{"one/a", "one/b", "two/c"} {
		nodes[stat(t, filepath.Join(top, name)).Ino] = true
	}
	if len(nodes) != 1 || stat(t, a).Nlink != 3 {
		t.Errorf("the hard links are apart: %v", nodes)
	}
	if got, _ := os.ReadFile(outside); string(got) != key {
		t.Errorf("what was not named has changed: %q", got)
	}
	if len(r.Changed) != 2 || r.Changed[0].Elsewhere != 0 || r.Changed[1].Elsewhere != 1 {
		t.Errorf("changed: %+v", r.Changed)
	}
	if len(r.Left) != 1 || !strings.HasSuffix(r.Left[0].Path, "/two/named") {
		t.Errorf("left: %+v", r.Left)
	}
}

// TestLeft: what has a value and cannot be scrubbed is told, without the value.
func TestLeft(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "of-"+key), "", 0o600)
	deep := dir + strings.Repeat("/d", maxDepth+1)
	write(t, filepath.Join(deep, "f"), key, 0o600)
	want := 2
	if unix.Geteuid() != 0 {
		want += 2
		write(t, filepath.Join(dir, "unreadable"), key, 0)
		write(t, filepath.Join(dir, "fixed/f"), key, 0o600)
		if err := os.Chmod(filepath.Join(dir, "fixed"), 0o500); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "fixed"), 0o700) })
	}
	r := scrub(t, dir)
	if len(r.Left) != want || r.Replaced != 0 {
		t.Errorf("%+v", r)
	}
	for _, l := range r.Left {
		if strings.Contains(l.Path+l.Why, key) {
			t.Errorf("the report has the value: %+v", l)
		}
	}
}

// TestNamed: a symlink in the place of a named path is not followed.
func TestNamed(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "file"), key, 0o600)
	if err := os.Symlink(file, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "missing"} {
		if r, err := scrubber().Scrub([]string{file, filepath.Join(dir, name)}); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	s := scrubber()
	s.DryRun = true
	if r, err := s.Scrub([]string{file}); err != nil || r.Replaced != 1 {
		t.Errorf("dry run: %+v, %v", r, err)
	}
	if got, _ := os.ReadFile(file); string(got) != key {
		t.Errorf("a dry run has changed the file: %q", got)
	}
}

// TestBusy: a file that was replaced meanwhile is not overwritten.
func TestBusy(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "new"), "other", 0o600)
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	p := target{d, int(d.Fd()), "new", "new", "new", 0}
	at, err := p.node()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "tmp"), "", 0o600)
	if err := p.put("tmp", inode{at.dev, at.ino + 1e6}, at); !errors.Is(err, errBusy) {
		t.Errorf("%v", err)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "new")); string(got) != "other" {
		t.Errorf("it was overwritten: %q", got)
	}
}
