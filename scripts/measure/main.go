// Command shape measures how this repository is built: the size of files and functions, which exported names lack a
// comment, which files of a package need each other in a circle, and how much of the code is tests. With -way it also
// counts the files of ours that a command passes through, from a coverage profile of it; scripts/shape makes these.
//
//	go run ./scripts/measure [-way NAME=PROFILE]...
//
// It reads the files as they are and runs nothing. Packages outside the module are not looked into, so a method that is
// reached through a type of theirs is not counted as an edge.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

const module = "github.com/sandboxrun/sandboxrun"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, out, errs io.Writer) int {
	var ways stringList
	flags := flag.NewFlagSet("measure", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.Var(&ways, "way", "NAME=PROFILE: count the files in a coverage profile")
	if flags.Parse(args) != nil {
		return 2
	}
	dirs, err := packageDirs(".")
	if err == nil {
		err = report(out, dirs)
	}
	for _, way := range ways {
		if err == nil {
			err = reportWay(out, way)
		}
	}
	if err != nil {
		fmt.Fprintln(errs, "measure:", err)
		return 1
	}
	return 0
}

type stringList []string

func (l *stringList) String() string     { return strings.Join(*l, ",") }
func (l *stringList) Set(s string) error { *l = append(*l, s); return nil }

// packageDirs lists the directories below root that hold Go files, but none of testdata.
func packageDirs(root string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") || d.Name() == "bin") {
			return fs.SkipDir
		}
		if !d.IsDir() && filepath.Ext(path) == ".go" {
			dirs = append(dirs, filepath.Dir(path))
		}
		return nil
	})
	slices.Sort(dirs)
	return slices.Compact(dirs), err
}

// shape is what is measured of one package.
type shape struct {
	dir         string
	files       []int // lines of each file, without tests
	functions   []int // lines of each function, without tests
	tests       int   // lines
	c           int   // lines of C and headers
	uncommented []string
	cycle       []string // the files of the largest circle
}

func report(w io.Writer, dirs []string) error {
	loaded := &loader{fset: token.NewFileSet(), known: map[string]*types.Package{}}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "package\tfiles\tlines\tmean\tp90\tmax\tfunc p90\tfunc max\tno comment\tcycle\tC\ttests/code\t")
	var uncommented []string
	for _, dir := range dirs {
		s, err := measure(loaded, dir)
		if err != nil {
			return err
		}
		if len(s.files) == 0 && s.tests == 0 {
			continue
		}
		code := sum(s.files) + s.c
		ratio := "-"
		if code > 0 {
			ratio = fmt.Sprintf("%.2f", float64(s.tests)/float64(code))
		}
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t\n", dir, len(s.files), sum(s.files), mean(s.files),
			percentile(s.files, 90), percentile(s.files, 100), percentile(s.functions, 90), percentile(s.functions, 100),
			len(s.uncommented), len(s.cycle), s.c, ratio)
		uncommented = append(uncommented, s.uncommented...)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	for _, name := range uncommented {
		fmt.Fprintln(w, "no comment:", name)
	}
	return nil
}

func measure(l *loader, dir string) (*shape, error) {
	s := &shape{dir: dir}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		n, err := lines(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		switch ext := filepath.Ext(e.Name()); {
		case strings.HasSuffix(e.Name(), "_test.go"):
			s.tests += n
		case ext == ".go":
			s.files = append(s.files, n)
		case ext == ".c" || ext == ".h":
			s.c += n
		}
	}
	files, err := l.parse(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		s.look(l.fset, f)
	}
	s.cycle = largestCycle(l.edges(dir, files))
	return s, nil
}

// look measures a file's functions and finds its exported names without a comment.
func (s *shape) look(fset *token.FileSet, f *ast.File) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			s.functions = append(s.functions, fset.Position(d.End()).Line-fset.Position(d.Pos()).Line+1)
			if d.Recv == nil || receiverExported(d.Recv) {
				s.comment(fset, d.Name, d.Doc)
			}
		case *ast.GenDecl:
			s.declared(fset, d)
		}
	}
}

func (s *shape) declared(fset *token.FileSet, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			s.comment(fset, spec.Name, d.Doc, spec.Doc, spec.Comment)
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				s.comment(fset, name, d.Doc, spec.Doc, spec.Comment)
			}
		}
	}
}

// comment notes an exported name that has none of the comments that it could have.
func (s *shape) comment(fset *token.FileSet, name *ast.Ident, docs ...*ast.CommentGroup) {
	if name.IsExported() && !slices.ContainsFunc(docs, func(d *ast.CommentGroup) bool { return d != nil }) {
		s.uncommented = append(s.uncommented, fmt.Sprintf("%s: %s", fset.Position(name.Pos()), name.Name))
	}
}

// receiverExported reports whether a method belongs to an exported type. Methods such as Error and String that an
// interface asks for need a comment all the same.
func receiverExported(recv *ast.FieldList) bool {
	exported := false
	ast.Inspect(recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			exported = id.IsExported()
			return false
		}
		return true
	})
	return exported
}

// loader checks types as far as the module's own sources allow; errors about other packages do not matter here.
type loader struct {
	fset  *token.FileSet
	known map[string]*types.Package
}

func (l *loader) parse(dir string) ([]*ast.File, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || otherBuild(name) {
			continue
		}
		f, err := parser.ParseFile(l.fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// otherBuild reports whether a file is for another architecture or for a build with tags of its own.
func otherBuild(name string) bool {
	text, err := os.ReadFile(name)
	return err != nil || strings.HasSuffix(name, "_arm64.go") ||
		strings.HasPrefix(string(text), "//go:build ") && !strings.HasPrefix(string(text), "//go:build !")
}

// Import makes loader a types.Importer.
func (l *loader) Import(path string) (*types.Package, error) {
	if p, ok := l.known[path]; ok {
		return p, nil
	}
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	l.known[path] = p
	if rel, ok := strings.CutPrefix(path, module+"/"); ok {
		files, err := l.parse(rel)
		if err != nil {
			return nil, err
		}
		checked, _ := l.check(path, files, nil)
		l.known[path] = checked
		return checked, nil
	}
	return p, nil
}

func (l *loader) check(path string, files []*ast.File, info *types.Info) (*types.Package, error) {
	conf := types.Config{Importer: l, FakeImportC: true, Error: func(error) {}}
	return conf.Check(path, l.fset, files, info)
}

// edges says for each file of a package which others it uses something of.
func (l *loader) edges(dir string, files []*ast.File) map[string]map[string]bool {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	pkg, _ := l.check(module+"/"+dir, files, info)
	edges := map[string]map[string]bool{}
	for id, obj := range info.Uses {
		if obj.Pkg() != pkg || !obj.Pos().IsValid() {
			continue
		}
		from, to := l.fset.Position(id.Pos()).Filename, l.fset.Position(obj.Pos()).Filename
		if from == to {
			continue
		}
		if edges[from] == nil {
			edges[from] = map[string]bool{}
		}
		edges[from][to] = true
	}
	return edges
}

// largestCycle returns the largest set of files of which each needs every other.
func largestCycle(edges map[string]map[string]bool) []string {
	reach := map[string]map[string]bool{}
	for from := range edges {
		reach[from] = reachable(edges, from)
	}
	var largest []string
	for from := range edges {
		var circle []string
		for to := range reach[from] {
			if reach[to][from] {
				circle = append(circle, to)
			}
		}
		if len(circle) > len(largest) {
			largest = circle
		}
	}
	return largest
}

// reachable lists what can be reached from a file by one edge or more.
func reachable(edges map[string]map[string]bool, from string) map[string]bool {
	seen := map[string]bool{}
	for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
		for next := range edges[todo[0]] {
			if !seen[next] {
				seen[next] = true
				todo = append(todo, next)
			}
		}
	}
	return seen
}

// reportWay counts the files of which a coverage profile says that a statement was executed.
func reportWay(w io.Writer, way string) error {
	name, profile, ok := strings.Cut(way, "=")
	if !ok {
		return fmt.Errorf("-way %q: NAME=PROFILE is needed", way)
	}
	f, err := os.Open(profile)
	if err != nil {
		return err
	}
	defer f.Close()
	files := map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text()) // FILE:RANGE STATEMENTS COUNT
		file, _, ok := strings.Cut(lines.Text(), ":")
		if ok && len(fields) == 3 && fields[2] != "0" && strings.HasPrefix(file, module+"/") {
			files[file] = true
		}
	}
	fmt.Fprintf(w, "files between main and the program, %s: %d\n", name, len(files))
	return lines.Err()
}

func lines(name string) (int, error) {
	text, err := os.ReadFile(name)
	return strings.Count(string(text), "\n"), err
}

func sum(list []int) int {
	total := 0
	for _, n := range list {
		total += n
	}
	return total
}

func mean(list []int) int {
	if len(list) == 0 {
		return 0
	}
	return sum(list) / len(list)
}

func percentile(list []int, p int) int {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}
