package lookup

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenDoesNotWait: a program may put a FIFO where the launcher looks for a program, or somebody a lease on one.
func TestOpenDoesNotWait(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "leased"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	in := Root{root}
	if got := in.interpreter("fifo"); len(got) > 0 {
		t.Errorf("the FIFO asks for %q", got)
	}
	signal.Ignore(unix.SIGIO)
	f, err := os.Open(filepath.Join(dir, "leased"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skip("no lease can be taken: ", err)
	}
	if _, err := in.Open("leased", unix.O_RDONLY); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("open: %v, want EAGAIN", err)
	}
}
