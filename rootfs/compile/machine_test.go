package compile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
	"github.com/sandboxrun/sandboxrun/rootfs/survey"
)

// TestMachine compiles views of the machine's own tree, with each base.
func TestMachine(t *testing.T) {
	tree, err := survey.HostTree()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(file, file+"2"); err != nil {
		t.Fatal(err)
	}
	for _, base := range []string{"base none", "base system", "base host"} {
		v, err := Compile(request(tree, roottest.Rules(t, base, "read "+dir, "deny "+file)))
		if err != nil {
			t.Fatalf("%s: %v", base, err)
		}
		checkView(t, tree, v)
		if at := v.Inside(file); len(at) != 0 {
			t.Errorf("%s: denied file at %q", base, at)
		}
		if at := v.Inside(file + "2"); len(at) != 0 {
			t.Errorf("%s: its hard link at %q", base, at)
		}
	}
}
