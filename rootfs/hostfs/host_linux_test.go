package hostfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

func TestHostTree(t *testing.T) {
	tree, err := hostfs.OpenHost()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, big, fifo, sym := filepath.Join(dir, "f"), filepath.Join(dir, "big"), filepath.Join(dir, "fifo"), filepath.Join(dir, "l")
	for p, size := range map[string]int{file: 3, big: 1<<20 + 1} {
		if err := os.WriteFile(p, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("f", sym), os.Link(file, file+"2"), syscall.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	if info, err := tree.Lstat(file); err != nil || info.Nlink != 2 || info.UID != os.Getuid() || info.Ino == 0 || info.Mode != 0o600 {
		t.Errorf("Lstat = %+v, %v", info, err)
	}
	if info, err := tree.Lstat(sym); err != nil || info.Mode&fs.ModeSymlink == 0 {
		t.Errorf("Lstat of a link = %+v, %v", info, err)
	}
	if text, err := tree.Readlink(sym); err != nil || text != "f" {
		t.Errorf("Readlink = %q, %v", text, err)
	}
	if names, err := tree.ReadDir(dir); err != nil || !slices.Equal(names, []string{"big", "f", "f2", "fifo", "l"}) {
		t.Errorf("ReadDir = %q, %v", names, err)
	}
	if data, err := tree.ReadFile(file); err != nil || len(data) != 3 {
		t.Errorf("ReadFile = %d bytes, %v", len(data), err)
	}
	for _, p := range []string{big, fifo, sym, dir, "/dev/null"} {
		if _, err := tree.ReadFile(p); err == nil {
			t.Errorf("ReadFile(%q) works", p)
		}
	}
	for _, p := range []string{filepath.Join(dir, "no"), filepath.Join(file, "below")} {
		if _, err := tree.Lstat(p); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Lstat(%q): %v", p, err)
		}
	}
	if p := hostfs.NewLocations(tree, tree.Mounts()); p.Visible["/proc"].Path != "/" || p.Of("/proc/self").Path != "/self" {
		t.Errorf("no /proc in %+v", tree.Mounts())
	}
}

// To open a FIFO lets its writer go on, even if nothing is read: what is no regular file is not opened.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	fifo, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "link")
	if err := syscall.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(fifo, link); err != nil {
		t.Fatal(err)
	}
	writer := make(chan error, 1)
	fd := -1
	go func() {
		var err error
		fd, err = syscall.Open(fifo, syscall.O_WRONLY, 0)
		writer <- err
	}()
	time.Sleep(50 * time.Millisecond) // it waits in open now
	for _, p := range []string{fifo, dir, "/dev/null", "/dev/ptmx"} {
		if f, err := (hostfs.Host{}).Open(p); err == nil {
			f.Close()
			t.Errorf("%s was opened", p)
		}
		if _, err := (hostfs.Host{}).ReadFile(p); err == nil {
			t.Errorf("%s was read", p)
		}
	}
	if f, err := hostfs.OpenRegular(link); !errors.Is(err, hostfs.ErrNotRegular) {
		t.Errorf("a link to a FIFO: %v, %v", f, err)
	}
	select {
	case err := <-writer:
		t.Errorf("the writer was let go: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	reader, err := syscall.Open(fifo, syscall.O_RDONLY|syscall.O_NONBLOCK, 0) // the control
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(reader) }()
	if err := <-writer; err != nil {
		t.Error(err)
	}
	_ = syscall.Close(fd)
}
