package integration

import (
	"bufio"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sandboxrun/sandboxrun"

// pkg is what go list says of a package.
type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Standard   bool
}

// house lists the packages of the repository by their short names: "" is main.
func house(t *testing.T) map[string]pkg {
	t.Helper()
	_, err := exec.LookPath("go")
	need(t, "go", err == nil)
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Deps,Standard", "./...")
	cmd.Dir = ".."
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]pkg{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if name, ours := strings.CutPrefix(p.ImportPath, module); ours {
			all[strings.TrimPrefix(name, "/")] = p
		}
	}
	if len(all) < 5 {
		t.Fatalf("the house has only %d packages", len(all))
	}
	return all
}

// TestSpecIsPure: spec and what it stands on start nothing, connect to nothing and read no clock.
func TestSpecIsPure(t *testing.T) {
	all := house(t)
	for _, name := range []string{"spec", "netpolicy"} {
		for _, imported := range all[name].Imports {
			if slices.Contains([]string{"os", "os/exec", "net", "syscall", "runtime", "unsafe", "C"}, imported) {
				t.Errorf("package %s imports %s", name, imported)
			}
		}
		for _, dep := range all[name].Deps {
			if dep == "os/exec" || strings.HasPrefix(dep, "github.com/opencontainers/runc") {
				t.Errorf("package %s depends on %s", name, dep)
			}
		}
	}
}

// TestSpecCallsNoSystem: golang.org/x/sys/unix gives spec its numbers, and nothing that does anything.
func TestSpecCallsNoSystem(t *testing.T) {
	if _, err := os.Stat("../main.go"); err != nil {
		t.Skip("the sources are not here")
	}
	sources(t, func(path string, file *ast.File) {
		if dir := filepath.Dir(path); dir != "spec" && dir != "netpolicy" {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); ok {
				if x, ok := f.X.(*ast.Ident); ok && (x.Name == "unix" || x.Name == "time" && f.Sel.Name == "Now") {
					t.Errorf("%s calls %s.%s", path, x.Name, f.Sel.Name)
				}
			}
			return true
		})
	})
}

// sources parses every Go file of the repository that is not a test.
func sources(t *testing.T, visit func(path string, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir("..", func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ParseComments)
		if err == nil {
			visit(filepath.ToSlash(strings.TrimPrefix(p, ".."+string(filepath.Separator))), file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOnlyMainExits: the environment and the end of the process are main's.
func TestOnlyMainExits(t *testing.T) {
	if _, err := os.Stat("../main.go"); err != nil {
		t.Skip("the sources are not here")
	}
	files := 0
	sources(t, func(path string, file *ast.File) {
		files++
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := call.X.(*ast.Ident)
			if !ok || x.Name != "os" || filepath.Base(path) == "main.go" {
				return true
			}
			switch call.Sel.Name {
			case "Exit", "Environ", "LookupEnv", "Setenv":
				t.Errorf("%s uses os.%s", path, call.Sel.Name)
			case "Getenv":
				if path != "container/init.go" { // libcontainer's own variable
					t.Errorf("%s uses os.Getenv", path)
				}
			}
			return true
		})
	})
	if files < 20 {
		t.Errorf("only %d files were looked at", files)
	}
}

// TestFileLength: a file that is longer than 400 lines wants to be two.
func TestFileLength(t *testing.T) {
	if _, err := os.Stat("../main.go"); err != nil {
		t.Skip("the sources are not here")
	}
	err := filepath.WalkDir("..", func(p string, d os.DirEntry, err error) error {
		ext := filepath.Ext(p)
		if err != nil || d.IsDir() || ext != ".go" && ext != ".c" && ext != ".h" {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		lines, blank := 0, 0
		for s := bufio.NewScanner(f); s.Scan(); lines++ {
			if text := strings.TrimSpace(s.Text()); text == "" || strings.HasPrefix(text, "//") {
				blank++
			}
		}
		if lines-blank > 400 {
			t.Errorf("%s has %d lines, %d of them blank or comments", p, lines, blank)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
