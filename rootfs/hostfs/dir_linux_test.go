package hostfs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

// TestList compares the quick look at directories with the slow one, on real files.
func TestList(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o751); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	for _, dirsOnly := range []bool{false, true} {
		quick, err := hostfs.ListDir(hostfs.Host{}, dir, dirsOnly)
		if err != nil {
			t.Fatal(err)
		}
		slow, err := hostfs.ListDir(struct{ hostfs.Tree }{hostfs.Host{}}, dir, dirsOnly)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(quick, func(a, b hostfs.Listed) int { return strings.Compare(a.Name, b.Name) })
		if len(quick) != len(slow) {
			t.Fatalf("%v, %v", quick, slow)
		}
		for i, e := range quick {
			if e.Name == "l" {
				slow[i].Info = hostfs.Info{Mode: fs.ModeSymlink}
			}
			if e != slow[i] {
				t.Errorf("%+v, slowly %+v", e, slow[i])
			}
		}
	}
	if _, err := hostfs.ListDir(hostfs.Host{}, filepath.Join(dir, "l"), false); err == nil {
		t.Error("a link was followed")
	}
	some, err := hostfs.SomeNames(hostfs.Host{}, dir, 9)
	if err != nil {
		t.Error(err)
	}
	roottest.Same(t, "some", some, []string{"a", "b", "c", "d", "l"})
	if n, err := hostfs.SomeNames(hostfs.Host{}, dir, 2); err != nil || len(n) != 2 || !slices.IsSorted(n) {
		t.Errorf("two names: %q, %v", n, err)
	}
	if n, err := hostfs.SomeNames(hostfs.Host{}, dir+"/nowhere", 2); err == nil {
		t.Errorf("of nothing: %q", n)
	}
}
