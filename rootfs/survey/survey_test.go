package survey

import (
	"io/fs"
	"path/filepath"
	"slices"
	"testing"
)

// TestProgramDataOfThisHost: whatever this machine has, everything that is shown can be read by everybody.
func TestProgramDataOfThisHost(t *testing.T) {
	tree, err := HostTree()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range Data(tree) {
		if slices.Contains(PackageData, d.Path) {
			continue // root's program may find a lock in it, which the kernel keeps shut
		}
		err := filepath.WalkDir(d.Path, func(p string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := tree.Lstat(p)
			if err == nil && info.Mode&fs.ModeSymlink == 0 && info.Mode&0o004 == 0 {
				t.Errorf("%s: %s", p, info.Mode)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkProgramData(b *testing.B) {
	tree, err := HostTree()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		Data(tree)
	}
}
