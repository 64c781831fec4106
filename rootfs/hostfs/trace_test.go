package hostfs

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestTrace: each kind of change to what was looked at shows, and what nobody has looked at does not matter.
func TestTrace(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) { t.Helper(); must(os.WriteFile(at(name), []byte(text), 0o600)) }
	for what, c := range map[string]struct {
		change func()
		same   bool
	}{
		"nothing":            {func() {}, true},
		"a content":          {func() { write("read", "B") }, false},
		"a read file's mode": {func() { must(os.Chmod(at("read"), 0o640)) }, false},
		"a mode":             {func() { must(os.Chmod(at("seen"), 0o640)) }, false},
		"another file":       {func() { write("seen.new", ""); must(os.Rename(at("seen.new"), at("seen"))) }, false},
		"a second name":      {func() { must(os.Link(at("seen"), at("seen2"))) }, false},
		"a link":             {func() { must(os.Remove(at("link"))); must(os.Symlink("read", at("link"))) }, false},
		"an entry":           {func() { write("list/new", "") }, false},
		"an entry's mode":    {func() { must(os.Chmod(at("list/f"), 0o640)) }, false},
		"what was not":       {func() { write("absent", "") }, false},
		"a seen's content":   {func() { write("seen", "longer") }, true},
		"in a seen dir":      {func() { write("dir/new", "") }, true},
		"an unrelated file":  {func() { write("unrelated", "") }, true},
	} {
		must(os.RemoveAll(dir))
		must(os.MkdirAll(at("list"), 0o700))
		must(os.MkdirAll(at("dir"), 0o700))
		write("read", "A")
		write("seen", "")
		write("list/f", "")
		must(os.Symlink("seen", at("link")))
		time.Sleep(2 * grain)
		begun := time.Now()
		tree, trace, err := OpenTraced()
		must(err)
		_, _ = tree.Lstat(at("read"))
		_, _ = tree.ReadFile(at("read"))
		_, _ = tree.Lstat(at("seen"))
		_, _ = tree.Readlink(at("link"))
		_, _ = tree.List(at("list"), false)
		_, _ = tree.Lstat(at("absent"))
		_, _ = tree.Lstat(at("dir"))
		if !trace.Settled(begun) {
			t.Error("what was written before is not settled")
		}
		c.change()
		if got := trace.Same(); got != c.same {
			t.Errorf("%s: the same is %v", what, got)
		}
		if n := len(trace.facts); len(trace.list) != n-1 { // the file that was looked at and read
			t.Errorf("%s: of %d questions %d are asked again", what, n, len(trace.list))
		}
	}
	write("read", "just now")
	tree, trace, err := OpenTraced()
	must(err)
	_, _ = tree.Lstat(at("read"))
	must(os.Chmod(at("read"), 0o640))
	_, _ = tree.ReadFile(at("read"))
	if trace.Settled(time.Now()) {
		t.Error("what was written just now is settled")
	}
	if trace.Same() {
		t.Error("what changed between two questions is the same")
	}
}
