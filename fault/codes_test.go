package fault

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the list of errors of the manual page")

const manPage = "../docs/sandboxrun.1.md"

// The manual page lists the table, and nothing else. With -update it is written.
func TestManPage(t *testing.T) {
	page, err := os.ReadFile(manPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), "\n**usage**\n")
	_, after, ok2 := strings.Cut(rest, "\n# ENVIRONMENT\n")
	if !ok || !ok2 {
		t.Fatalf("%s has no list of errors before its part ENVIRONMENT", manPage)
	}
	want := before + list() + "\n# ENVIRONMENT\n" + after
	if want == string(page) {
		return
	}
	if !*update {
		t.Fatalf("the list of errors in %s is not the table: go test ./fault -update", manPage)
	}
	if err := os.WriteFile(manPage, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// list is the table as a part of the manual page.
func list() string {
	var b strings.Builder
	for _, e := range Table() {
		fmt.Fprintf(&b, "\n**%s**\n", strings.Join(e.Codes, "**, **"))
		line := ":"
		for word := range strings.FieldsSeq(e.Meaning) {
			if len(line)+1+len(word) > 150 {
				b.WriteString(line + "\n")
				line = word
			} else {
				line += " " + word
			}
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// Each constant is in one entry of the table, and all code names codes by the constants.
func TestEveryCodeIsInTheTable(t *testing.T) {
	seen := map[string]int{}
	for _, e := range Table() {
		for _, code := range e.Codes {
			seen[code]++
		}
	}
	constants := 0
	inspect(t, "codes.go", func(n ast.Node) {
		decl, ok := n.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			return
		}
		for _, s := range decl.Specs {
			value, _ := s.(*ast.ValueSpec).Values[0].(*ast.BasicLit)
			if value.Kind != token.STRING {
				continue
			}
			constants++
			if code := strings.Trim(value.Value, `"`); seen[code] != 1 {
				t.Errorf("%s is in the table %d times", code, seen[code])
			}
		}
	})
	if constants != len(seen) || constants < 50 {
		t.Errorf("%d constants, %d codes in the table", constants, len(seen))
	}
}

// An error whose code is written out would be in no table.
func TestNoCodeIsWrittenOut(t *testing.T) {
	files, known := 0, map[string]bool{}
	for _, e := range Table() {
		for _, code := range e.Codes {
			known[code] = true
		}
	}
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		files++
		inspect(t, name, func(n ast.Node) {
			var code ast.Expr
			switch n := n.(type) {
			case *ast.CallExpr:
				if called(n.Fun) && len(n.Args) > 2 {
					code = n.Args[0]
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Code" {
					code = n.Value
				}
			case *ast.BinaryExpr:
				if field, ok := n.X.(*ast.SelectorExpr); ok && field.Sel.Name == "Code" {
					code = n.Y
				}
			}
			if lit, ok := code.(*ast.BasicLit); ok && lit.Kind == token.STRING && known[strings.Trim(lit.Value, `"`)] {
				t.Errorf("%s: the code %s is written out; use a constant of package fault", name, lit.Value)
			}
		})
		return nil
	})
	if err != nil || files < 100 {
		t.Fatalf("%d files, %v", files, err)
	}
}

// called says whether a function makes an error of a code.
func called(f ast.Expr) bool {
	switch f := f.(type) {
	case *ast.Ident:
		return f.Name == "fail"
	case *ast.SelectorExpr:
		pkg, ok := f.X.(*ast.Ident)
		return ok && pkg.Name == "fault" && f.Sel.Name == "New"
	}
	return false
}

func inspect(t *testing.T, name string, look func(ast.Node)) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool { look(n); return true })
}

func TestStatus(t *testing.T) {
	for code, want := range map[string]int{
		ProgramNotFound: 127, InterpreterMissing: 127, ProgramNotExecutable: 126, InterpreterRelative: 126, CwdMissing: 125, UsageCode: 125,
		RecordEdited: 1, "of a later version": 125,
	} {
		if got := Status(code); got != want {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
}
