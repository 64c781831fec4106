package idmap

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// A mount that another one covers is not there for those who come by its path.
func TestHiddenMounts(t *testing.T) {
	text := `1 0 8:1 / / rw - ext4 x rw
2 1 8:2 / /g rw - ext4 x rw
3 2 0:3 / /g/a rw - tmpfs x rw
4 3 0:4 / /g/a/b rw - tmpfs x rw
5 2 0:5 / /g/c/d rw - tmpfs x rw
6 2 0:6 / /g/c rw - tmpfs x rw
7 6 0:7 / /g/c/d rw - tmpfs x rw
8 2 0:8 / /g/e rw - tmpfs x rw
9 8 0:9 / /g/e rw - tmpfs x rw
10 8 0:10 / /g/e/f rw - tmpfs x rw
`
	mounts := hostfs.ParseMounts(text)
	byID := map[int]hostfs.Mount{}
	for _, l := range mounts {
		byID[l.ID] = l
	}
	var got []int
	for _, l := range mounts {
		if hidden(l, mounts, byID) {
			got = append(got, l.ID)
		}
	}
	if want := []int{5, 8, 10}; !slices.Equal(got, want) {
		t.Errorf("hidden are %v, want %v", got, want)
	}
}

// What cannot be idmapped below a grant is left out, and the rest of it can be shown; of what the view covers nothing is asked.
func TestIdmapWithout(t *testing.T) {
	if !MachineRoot() || NotApart() != "" {
		t.Skip("only the machine's root can")
	}
	dir := t.TempDir()
	if _, err := Tester(FirstID, 0, 0)(dir); err != nil {
		t.Skip(err)
	}
	mount := func(kind, name, source string, flags uintptr) {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := unix.Mount(source, at, kind, flags, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	}
	for _, d := range []string{"fine/below", "not", "src"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	mount("", "fine", filepath.Join(dir, "src"), unix.MS_BIND)
	mount("proc", "not", "proc", 0)
	mount("", "file", "/proc/version", unix.MS_BIND)
	left, err := Tester(FirstID, 0, 0)(dir)
	why := "its file system (proc) cannot be idmapped on this kernel"
	want := []spec.LeftOut{{Path: filepath.Join(dir, "file"), Why: why}, {Path: filepath.Join(dir, "not"), Dir: true, Why: why}}
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("left out are %+v, want %+v; %v", left, want, err)
	}
	uids := spec.Exchange(0, FirstID)
	m := specs.Mount{Type: "bind", Source: dir, UIDMappings: uids, GIDMappings: uids}
	parts, left, err := openParts(m, func(path string) bool { return path != filepath.Join(dir, "fine") })
	defer Close(parts)
	if err != nil || len(left) > 0 || len(parts) != 2 || parts[0].Rel != "." || parts[1].Rel != "fine" {
		t.Errorf("%+v %+v %v", parts, left, err)
	}
}
