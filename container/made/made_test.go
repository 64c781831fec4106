package made

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRemove removes what a program may have made: deeper than a path can be long, shut directories, links out, many files.
func TestRemove(t *testing.T) {
	dir := t.TempDir()
	keep := filepath.Join(dir, "keep")
	if err := os.WriteFile(keep, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := Name(dir)
	base, err := r.Mkdir()
	if err != nil {
		t.Fatal(err)
	}
	if err := Dir(base, "w", -1, -1); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(r.Path, "w/out")); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		if err := os.WriteFile(filepath.Join(r.Path, "w", strings.Repeat("x", i%200+1)+string(rune(0x4e00+i))), nil, 0o400); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Openat(int(base.Fd()), "w", unix.O_PATH|unix.O_CLOEXEC, 0)
	name := strings.Repeat("d", 200)
	for i := 0; i < 600 && err == nil; i++ {
		if err = unix.Mkdirat(fd, name, 0o700); err != nil {
			break
		}
		_ = unix.Symlinkat("..", fd, "up")
		next, oerr := unix.Openat(fd, name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if i%7 == 0 {
			_ = unix.Fchmodat(fd, ".", 0, 0)
		}
		unix.Close(fd)
		fd, err = next, oerr
	}
	unix.Close(fd)
	base.Close()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(r.Path, "w"), 0); err != nil {
		t.Fatal(err)
	}
	if err := r.Remove(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	if data, err := os.ReadFile(keep); err != nil || string(data) != "kept" {
		t.Errorf("%q, %v", data, err)
	}
	// What stands there and is another file stays.
	if err := os.Mkdir(r.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	other := Record{Path: r.Path, Dev: r.Dev, Ino: r.Ino + 1<<40}
	if err := other.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(r.Path); err != nil {
		t.Error(err)
	}
}
