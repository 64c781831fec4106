package result

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/fault"
)

var update = flag.Bool("update", false, "write the generated files")

// TestResultContract holds together what a result is and what is said of it: the struct, the constants, the statuses, the JSON
// Schema, docs/result.md and the manual page.
func TestResultContract(t *testing.T) {
	compareKeys(t, "Result", reflect.TypeFor[Result](), resultKeys())
	compareConstants(t)
	compareStatuses(t)

	const path = "../../docs/result.md"
	if *update {
		if err := os.WriteFile(path, reference(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(doc, reference()) {
		t.Error("docs/result.md is out of date: go test ./container/result -run TestResultContract -update")
	}

	dir := t.TempDir()
	if out, err := exec.Command("../../scripts/man", dir).CombinedOutput(); err != nil {
		t.Fatalf("scripts/man: %v\n%s", err, out)
	}
	page, err := os.ReadFile(filepath.Join(dir, "sandboxrun-result.5"))
	if err != nil {
		t.Fatal(err)
	}
	manual := strings.ReplaceAll(string(page), `\`, "") // roff escapes hyphens and underscores
	for _, word := range contractWords(resultKeys()) {
		if !strings.Contains(manual, word) {
			t.Errorf("the manual page lacks %q", word)
		}
	}
	var schema struct {
		Required   []string
		Properties map[string]struct{ Enum []any }
	}
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	for _, name := range outcomeNames() {
		if !slices.Contains(schema.Properties["outcome"].Enum, any(name)) {
			t.Errorf("the schema lacks the outcome %q", name)
		}
	}
	compareExamples(t, schema.Required, schema.Properties)
}

// compareKeys compares a struct with its table: names, order, types, and what may be left out or null.
func compareKeys(t *testing.T, what string, typ reflect.Type, keys []resultKey) {
	t.Helper()
	var fields []reflect.StructField
	for f := range typ.Fields() {
		if f.Tag.Get("json") != "-" {
			fields = append(fields, f)
		}
	}
	if len(fields) != len(keys) {
		t.Fatalf("%s has %d keys, its table %d", what, len(fields), len(keys))
	}
	kinds := map[reflect.Kind]string{
		reflect.String: "string", reflect.Int: "integer", reflect.Int64: "integer", reflect.Float64: "number", reflect.Bool: "boolean",
		reflect.Struct: "object", reflect.Slice: "array",
	}
	for i, f := range fields {
		k := keys[i]
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		ft := f.Type
		null := ft.Kind() == reflect.Pointer
		if null {
			ft = ft.Elem()
		}
		if name != k.name || kinds[ft.Kind()] != k.kind || null != k.null || strings.Contains(rest, "omitempty") != k.optional {
			t.Errorf("%s: the table has %+v for %s %q", what, k, f.Type, f.Tag)
		}
		if ft.Kind() == reflect.Slice {
			ft = ft.Elem()
		}
		if ft.Kind() == reflect.Struct {
			compareKeys(t, name, ft, k.inner)
		}
		if k.meaning == "" {
			t.Errorf("%s.%s: nothing is said of it", what, name)
		}
	}
}

// compareConstants compares the tables with every outcome and finding that result.go names.
func compareConstants(t *testing.T) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "result.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	first := file.Decls[slices.IndexFunc(file.Decls, func(d ast.Decl) bool {
		g, ok := d.(*ast.GenDecl)
		return ok && g.Tok == token.CONST
	})].(*ast.GenDecl)
	for _, s := range first.Specs {
		text, err := strconv.Unquote(s.(*ast.ValueSpec).Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		named = append(named, text)
	}
	told := append(outcomeNames(), findingNames()...)
	slices.Sort(named)
	slices.Sort(told)
	if !slices.Equal(named, told) {
		t.Errorf("result.go has the outcomes and findings\n%q, the tables\n%q", named, told)
	}
}

// compareStatuses compares the statuses that are told with those that are given.
func compareStatuses(t *testing.T) {
	t.Helper()
	row := func(outcome, finding string) string {
		for _, o := range resultOutcomes() {
			if o.name == outcome && o.finding == finding {
				return o.status
			}
		}
		t.Errorf("there is no row %s, %s", outcome, finding)
		return ""
	}
	for _, e := range endings() {
		// What a limit ends without a status of its own has the status of a killed program.
		if told := row(e.outcome, e.finding); told != strconv.Itoa(e.status) && (told != "the program's" || e.status != 137) {
			t.Errorf("%s: the status is %d, the table says %s", e.outcome, e.status, told)
		}
	}
	for _, code := range []string{fault.ProgramNotFound, fault.InterpreterMissing, fault.ProgramNotExecutable, fault.InterpreterRelative, "policy_invalid", fault.CwdMissing} {
		if told := row(NotStarted, FindingOf(code)); !strings.Contains(told, strconv.Itoa(fault.Status(code))) {
			t.Errorf("%s: the status is %d, the table says %s", code, fault.Status(code), told)
		}
	}
}

// compareExamples compares results as they are written with the schema's keys.
func compareExamples(t *testing.T, required []string, properties map[string]struct{ Enum []any }) {
	t.Helper()
	for _, r := range []*Result{{}, FromError(fault.New(fault.ProgramNotFound, "", "x"), &Error{Code: fault.ProgramNotFound})} {
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		for name := range got {
			if _, ok := properties[name]; !ok {
				t.Errorf("the schema lacks %s", name)
			}
		}
		for _, name := range required {
			if _, ok := got[name]; !ok {
				t.Errorf("a result lacks %s", name)
			}
		}
	}
}

func contractWords(keys []resultKey) []string {
	words := slices.Concat(outcomeNames(), findingNames())
	for _, k := range keys {
		words = append(words, k.name)
		words = append(words, contractWords(k.inner)...)
	}
	for _, s := range resultStatuses() {
		words = append(words, s[0])
	}
	return words
}
