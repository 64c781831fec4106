package made

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// TestNotes: what was made for a sandbox that is about to be created is nobody else's to remove; what a creator has left that is dead is
// swept, and no more than that.
func TestNotes(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	n, parent := Notes{Root: root}, t.TempDir()
	make := func(id string) (*Directory, string) {
		t.Helper()
		p := &policy.Policy{}
		p.Files.Workspace = &rootfs.Workspace{Source: rootfs.SourceDisk, Path: "/w", Parent: parent}
		d, err := n.Make(id, p, &spec.Plan{View: &rootfs.View{}})
		if err != nil {
			t.Fatal(err)
		}
		return d, filepath.Dir(p.Files.Workspace.Source)
	}
	sweep := func() {
		t.Helper()
		if err := n.Sweep(func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	there := func(at string, want bool) {
		t.Helper()
		if _, err := os.Lstat(filepath.Join(at, "workspace")); errors.Is(err, fs.ErrNotExist) == want {
			t.Errorf("%s: there: %v, want %v", at, !want, want)
		}
	}
	d, at := make("a")
	sweep()
	there(at, true)
	_, err = n.Make("a", &policy.Policy{}, &spec.Plan{View: &rootfs.View{}})
	if e, ok := errors.AsType[*fault.Error](err); !ok || e.Code != fault.IDInUse {
		t.Errorf("the same id at the same time: %v", err)
	}
	d.Close() // as when its creator is killed
	if err := root.Mkdir("a", 0o700); err != nil {
		t.Fatal(err)
	}
	sweep()
	there(at, true) // it is the sandbox's now
	if err := root.Remove("a"); err != nil {
		t.Fatal(err)
	}
	sweep()
	there(at, false)

	d, at = make("a")
	if err := d.Discard(); err != nil {
		t.Error(err)
	}
	there(at, false)
	d, at = make("a")
	if kept, err := d.Keep(); err != nil || kept != at {
		t.Errorf("%q, %v, want %q", kept, err, at)
	}
	d.Close()
	sweep()
	there(at, true)
}
