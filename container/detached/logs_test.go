package detached

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// slowTail is what tail does, by splitting all of the text.
func slowTail(text string, lines int) string {
	parts := strings.SplitAfter(text, "\n")
	if parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	return strings.Join(parts[max(0, len(parts)-lines):], "")
}

func TestTail(t *testing.T) {
	texts := []string{"", "\n", "\n\n", "a", "a\n", "a\nb", "a\nb\n", "\na", strings.Repeat("line\n", 50_000), strings.Repeat("x", 200_000) + "\ny"}
	for range 200 {
		var b strings.Builder
		for range rand.IntN(12) {
			b.WriteString(strings.Repeat("x", rand.IntN(3)) + strings.Repeat("\n", rand.IntN(3)))
		}
		texts = append(texts, b.String())
	}
	path := filepath.Join(t.TempDir(), "f")
	for _, text := range texts {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, lines := range []int{0, 1, 2, 3, 10, 20_000} {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			err = tail(f, lines)
			got, _ := io.ReadAll(f)
			f.Close()
			if want := slowTail(text, lines); err != nil || string(got) != want {
				t.Errorf("%.40q, %d lines: got %.40q, want %.40q, %v", text, lines, got, want, err)
			}
		}
	}
}

func TestValidExec(t *testing.T) {
	for name, want := range map[string]bool{
		"e000001": true, "e1234567": true, "": false, "e1": false, "000001": false, "e00000x": false, "e000001/..": false, "..": false,
		"e-00001": false, "e+00001": false, "E000001": false, "e000001\n": false, "e" + strings.Repeat("1", 21): false,
	} {
		if got := ValidExec(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
