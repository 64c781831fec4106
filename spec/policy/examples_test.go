package policy

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestExamples keeps the examples loadable as they are: they use nothing that is not supported yet.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/policy.toml")
	if err != nil || len(files) < 3 {
		t.Fatalf("found %q, %v", files, err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		dir, err := filepath.Abs(filepath.Dir(f))
		if err != nil {
			t.Fatal(err)
		}
		p := mustLoad(t, Input{Name: f, Data: data, Dir: dir})
		if p.Name != filepath.Base(dir) || p.Limits.Wall == 0 {
			t.Errorf("%s: name %q, wall %v", f, p.Name, p.Limits.Wall)
		}
		for _, g := range slices.Concat(p.Files.Read, p.Files.Write, p.Files.Deny) {
			if _, err := os.Lstat(g.Path); err != nil && p.Name != "git" { // the reader makes its repository
				t.Errorf("%s: %v", g.From, err)
			}
		}
	}
}
