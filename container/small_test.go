package container

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/quick"

	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/trust"
)

func TestKeeperKeepsBothEnds(t *testing.T) {
	// Whatever the sizes of the writes, what is kept depends on the stream alone.
	f := func(data []byte, cuts []uint8) bool {
		const limit = 16
		whole, parts := newKeeper(limit), newKeeper(limit)
		_, _ = whole.Write(data)
		rest := data
		for _, c := range cuts {
			n := min(int(c)%20, len(rest))
			_, _ = parts.Write(rest[:n])
			rest = rest[n:]
		}
		_, _ = parts.Write(rest)
		a, cutA := whole.Content()
		b, cutB := parts.Content()
		if !bytes.Equal(a, b) || cutA != cutB || parts.total != int64(len(data)) {
			return false
		}
		if len(data) <= limit {
			return bytes.Equal(a, data) && !cutA
		}
		return cutA && len(a) < limit+40
	}
	if err := quick.Check(f, &quick.Config{MaxCount: 3000}); err != nil {
		t.Error(err)
	}
}

func TestKeeperCutsBetweenCharacters(t *testing.T) {
	for limit := int64(6); limit < 14; limit++ {
		k := newKeeper(limit)
		for range 100 {
			_, _ = k.Write([]byte("é→𝄞"))
		}
		out, cut := k.Content()
		if !cut || !bytes.Equal(out, []byte(strings.ToValidUTF8(string(out), "?"))) {
			t.Errorf("limit %d: %q", limit, out)
		}
	}
}

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
