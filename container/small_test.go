package container

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/trust"
)

func TestCheckID(t *testing.T) {
	for _, id := range []string{"a", "A9", "x.y_z-1", strings.Repeat("x", 128)} {
		if err := CheckID(id); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", ".", "..", "-x", "_x", ".x", "a/b", "/a", "a b", "a\n", "é", "a\x00", strings.Repeat("x", 129)} {
		if err := CheckID(id); err == nil {
			t.Errorf("%q is valid", id)
		}
	}
}

func TestOpenStoreRefusesWhatOthersCanWrite(t *testing.T) {
	dir := t.TempDir()
	wide, link := filepath.Join(dir, "wide"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(wide, 0o700), os.Chmod(wide, 0o777), os.Symlink(t.TempDir(), link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{wide, link} {
		var e *Error
		if _, err := OpenStore(path); !errors.As(err, &e) || e.Code != "state_unusable" {
			t.Errorf("%s: %v", path, err)
		}
	}
	s, err := OpenStore(filepath.Join(dir, "a/b/new"))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if info, err := os.Stat(filepath.Join(dir, "a/b/new")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
}

func TestStorePath(t *testing.T) {
	mine := t.TempDir()
	uid := os.Getuid()
	for _, tt := range []struct {
		dir, runtime string
		uid          int
		want         string
	}{
		{"/given", mine, uid, "/given"},
		{"", "/nonexistent", 4321, "/tmp/sandboxrun-4321"},
		{"", "", 4321, "/tmp/sandboxrun-4321"},
		{"", mine, 4321, "/tmp/sandboxrun-4321"}, // somebody else's runtime directory, kept by sudo
	} {
		if got := trust.StatePath(tt.dir, tt.runtime, tt.uid); got != tt.want {
			t.Errorf("StorePath(%q, %q, %d) = %q, want %q", tt.dir, tt.runtime, tt.uid, got, tt.want)
		}
	}
	want := filepath.Join(mine, "sandboxrun")
	if uid == 0 {
		want = "/run/sandboxrun"
	}
	if got := trust.StatePath("", mine, uid); got != want {
		t.Errorf("the caller's own: %q, want %q", got, want)
	}
	if uid != 0 { // nobody but real root may write /run
		if got := trust.StatePath("", "", 0); got != "/tmp/sandboxrun-0" {
			t.Errorf("root of a user namespace: %q", got)
		}
	}
}

func TestDiagnoseWorksHere(t *testing.T) {
	// The machine makes sandboxes, or the other tests of this package would fail; then nothing may be wrong with it.
	if err := diagnose.Machine(); err != nil {
		t.Error(err)
	}
}
