package integration

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// number is a number of the public pages. The code has it once, in the group of a regular expression or as the length of a table.
type number struct {
	code  string   // a pattern that matches once in all sources, and whose group is a constant expression
	table string   // or a function, whose first list of more than one element is counted
	as    string   // how the pages write it: "", "%s", "K", "M", "G" (bytes), "us" (microseconds, as milliseconds)
	pages []string // PAGE: a sentence's part, with # for the number
}

func numbers() []number {
	const man, security, readme, architecture = "docs/sandboxrun.1.md: ", "docs/security.md: ", "README.md: ", "docs/architecture.md: "
	return []number{
		{code: `lookMost\s+= (.*) //`, pages: []string{security + "the first # entries of all grants", security + "at up to # entries", architecture + "up to # entries"}},
		{code: `LogMax = (.*)`, as: "M", pages: []string{man + "The first # of each stream are kept", architecture + "stdout and stderr (# each at most)"}},
		{code: `outputDirMax = (.*)`, as: "G", pages: []string{man + "up to # each"}},
		{code: `MaxSize\s+= (.*) // bytes`, as: "M", pages: []string{man + "at least # of them"}},
		{code: `define MAX_EVENTS \((.*)\)`, as: "M", pages: []string{man + "at least # of them"}},
		{code: `eagerInput = (.*)`, as: "K", pages: []string{man + "until the program has read #"}},
		{code: `"max=([0-9]+)"`, pages: []string{man + "An exec can have # pseudo-terminals", security + "more than # of the machine's pseudo-terminals", security + "with `max=#`"}},
		{code: `viewName = .*\{0,([0-9]+)\}`, as: "+1", pages: []string{man + "has at most # letters, digits"}},
		{code: `define FX_GRACE ([0-9]+)`, as: "us", pages: []string{security + "after # without a report", architecture + "after # without a report"}},
		{code: `define EXACT_CPU \(([0-9]+) \* MS\)`, as: "ms", pages: []string{security + "takes more than # of processor time"}},
		{code: `FirstID = (0x[0-9a-f]+)`, as: "plain", pages: []string{security + "user id of its own, from # to"}},
		{code: `lastID\s+= (0x[0-9a-f]+)`, as: "plain", pages: []string{security + " to #, a range that no system gives to users"}},
		{code: `"max_inotify_instances", ([^}]+)\}`, pages: []string{security + "at most # and 262,144"}},
		{code: `"max_inotify_watches", ([^}]+)\}`, pages: []string{security + "at most 1,024 and #"}},
		{code: `maxMounts = (\d+)`, pages: []string{security + "at most # file systems"}},
		{code: `most, networks = 1024, (\d+)`, pages: []string{security + "at most #; 1,024"}},
		{code: `"max_fanotify_groups", ([^}]+)\}`, pages: []string{security + "at most # and 8,192"}},
		{code: `"max_fanotify_marks", ([^}]+)\}`, pages: []string{security + "at most 32 and #"}},
		{code: `RLIMIT_NPROC, 2, ([0-9]+)\}`, pages: []string{security + "if the caller may have more than #"}},
		{code: `RefusalRate\s+= ([0-9]+)`, pages: []string{security + "at most # refusals and failures a second"}},
		{code: `defaultTmpfs = (.*)`, as: "G", pages: []string{security + "without a size in the policy #"}},
		{code: `percent, most = 100, (.*)`, as: "M", pages: []string{security + "`ulimit -f`, up to #"}},
		{code: `const MinLength = (.*)`, pages: []string{security + "with values of # characters or more", "docs/policy.md: of # characters or more"}},
		{code: `mostForeign = (.*)`, pages: []string{security + "looks at # files at most"}},
		{code: `plainID   = (.*)`, as: "plain", pages: []string{security + "user `sandbox` (#)", "docs/policy.md: user sandbox (#)"}},
		{table: "refusedCalls", pages: []string{security + "# of the refused calls"}},
	}
}

// TestDocsNumbers fails if a page has another number than the code.
func TestDocsNumbers(t *testing.T) {
	sources := readSources(t)
	pages := map[string]string{}
	for _, n := range numbers() {
		value := n.find(t, sources)
		for _, p := range n.pages {
			name, part, _ := strings.Cut(p, ": ")
			if pages[name] == "" {
				text, err := os.ReadFile(filepath.Join("..", name))
				if err != nil {
					t.Fatal(err)
				}
				pages[name] = strings.Join(strings.Fields(strings.ReplaceAll(string(text), "**", "")), " ")
			}
			part = strings.TrimSpace(strings.Replace(part, "#", value, 1))
			if !strings.Contains(pages[name], part) {
				t.Errorf("%s does not say %q; the code has %s in %s%s", name, part, value, n.code, n.table)
			}
		}
	}
}

// readSources reads all Go and C sources except tests.
func readSources(t *testing.T) map[string]string {
	t.Helper()
	sources := map[string]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "bin" || d.Name() == "integration") {
			return fs.SkipDir
		}
		ext := filepath.Ext(path)
		if ext != ".go" && ext != ".c" && ext != ".h" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		sources[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// find returns the number as the pages write it.
func (n *number) find(t *testing.T, sources map[string]string) string {
	t.Helper()
	if n.table != "" {
		return strconv.Itoa(tableLength(t, sources, n.table))
	}
	var found []string
	pattern := regexp.MustCompile(n.code)
	for _, text := range sources {
		for _, m := range pattern.FindAllStringSubmatch(text, -1) {
			found = append(found, m[1])
		}
	}
	if len(found) != 1 {
		t.Fatalf("%q is in the sources %d times: %q", n.code, len(found), found)
	}
	expr, _, _ := strings.Cut(found[0], " //")
	v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, expr)
	if err != nil {
		t.Fatalf("%q: %v", n.code, err)
	}
	value, exact := constant.Int64Val(v.Value)
	if !exact {
		t.Fatalf("%q is %v", n.code, v.Value)
	}
	return n.format(value)
}

func (n *number) format(value int64) string {
	switch n.as {
	case "K":
		return fmt.Sprintf("%d KiB", value>>10)
	case "M":
		return fmt.Sprintf("%d MiB", value>>20)
	case "G":
		return fmt.Sprintf("%d GiB", value>>30)
	case "us":
		return fmt.Sprintf("%d ms", value/1000)
	case "ms":
		return fmt.Sprintf("%g s", float64(value)/1000)
	case "plain":
		return strconv.FormatInt(value, 10)
	case "+1":
		value++
	}
	if value >= 1000 {
		return fmt.Sprintf("%d,%03d", value/1000, value%1000)
	}
	return strconv.FormatInt(value, 10)
}

// tableLength is the number of elements of the first list in a function.
func tableLength(t *testing.T, sources map[string]string, function string) int {
	t.Helper()
	length := 0
	for path, text := range sources {
		if filepath.Ext(path) != ".go" || !strings.Contains(text, "func "+function+"(") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			f, ok := node.(*ast.FuncDecl)
			if ok && f.Name.Name != function {
				return false
			}
			if list, ok := node.(*ast.CompositeLit); ok && length == 0 && len(list.Elts) > 1 {
				length = len(list.Elts)
			}
			return length == 0
		})
	}
	if length == 0 {
		t.Fatalf("there is no table in a function %s", function)
	}
	return length
}
