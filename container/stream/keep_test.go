package stream

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/quick"
)

func TestKeeperKeepsBothEnds(t *testing.T) {
	// Whatever the sizes of the writes, what is kept depends on the stream alone.
	f := func(data []byte, cuts []uint8) bool {
		const limit = 16
		whole, parts := NewKeeper(limit), NewKeeper(limit)
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
		k := NewKeeper(limit)
		for range 100 {
			_, _ = k.Write([]byte("é→𝄞"))
		}
		out, cut := k.Content()
		if !cut || !bytes.Equal(out, []byte(strings.ToValidUTF8(string(out), "?"))) {
			t.Errorf("limit %d: %q", limit, out)
		}
	}
}

func someFile(t *testing.T, most int64) (*File, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return &File{f: f, name: "the file", cap: most}, path
}

func TestStreamFileStopsAtItsCap(t *testing.T) {
	s, path := someFile(t, 10)
	var passed bytes.Buffer
	c := &copier{&passed, streamFiles{s}}
	for range 5 {
		if n, err := c.Write([]byte("abcd")); n != 4 || err != nil {
			t.Fatal(n, err)
		}
	}
	if w := s.close(); w != "the file holds the first 10 bytes of the stream; the 10 after them were left out" {
		t.Errorf("warning %q", w)
	}
	if data, _ := os.ReadFile(path); string(data) != "abcdabcdab" || passed.Len() != 20 {
		t.Errorf("kept %q, passed on %q", data, passed.String())
	}
	s, _ = someFile(t, 4)
	s.keep([]byte("abcd"))
	if w := s.close(); w != "" {
		t.Errorf("warning %q", w)
	}
}

func TestStreamFileFails(t *testing.T) {
	s, _ := someFile(t, 1000)
	s.keep([]byte("ab"))
	s.f.Close()
	s.keep([]byte("cd"))
	s.keep([]byte("e"))
	if w := s.close(); w != "write the file: file already closed: the last 3 bytes of the stream are not in it" {
		t.Errorf("warning %q", w)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	s = &File{f: full, name: "it", cap: 1000}
	s.keep([]byte("ab"))
	if w := s.close(); w != "write it: no space left on device: the last 2 bytes of the stream are not in it" {
		t.Errorf("warning %q", w)
	}
}
