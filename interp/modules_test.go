package interp

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/survey"
)

func findModules(t *testing.T, files rootfs.Policy, names ...string) *Modules {
	t.Helper()
	tree, err := survey.HostTree()
	if err != nil {
		t.Fatal(err)
	}
	if files.Base.Kind == "" {
		files.Base.Kind = rootfs.BaseNone
	}
	var items []Item
	for _, name := range names {
		items = append(items, Item{Name: name, From: "p"})
	}
	return FindModules(tree, files, items)
}

// gone lists what is hidden in a directory, relative to it.
func gone(t *testing.T, dir string, files rootfs.Policy, names ...string) []string {
	t.Helper()
	var list []string
	for _, g := range findModules(t, files, names...).Gone {
		list = append(list, strings.TrimPrefix(g.Path, dir+"/"))
	}
	return list
}

func TestFindModules(t *testing.T) {
	const site = "py/lib/python3.11/site-packages/"
	for _, c := range []struct {
		name  string
		files []string
		hide  string
		want  []string // in site, if it does not begin with "/"
	}{
		{"a package and its metadata", []string{"foo/__init__.py", "foo-1.0.dist-info/RECORD", "food/__init__.py"}, "foo", []string{"foo", "foo-1.0.dist-info"}},
		{"a file and its byte code", []string{"foo.py", "__pycache__/foo.cpython-311.pyc", "__pycache__/foo.cpython-311.opt-1.pyc", "__pycache__/foo.cpython-311.pyc.1234", "__pycache__/food.cpython-311.pyc"}, "foo", []string{
			"__pycache__/foo.cpython-311.opt-1.pyc", "__pycache__/foo.cpython-311.pyc", "__pycache__/foo.cpython-311.pyc.1234", "foo.py",
		}},
		{"extensions", []string{"foo.cpython-311-x86_64-linux-gnu.so", "foo.abi3.so", "foo.so", "foo_.so", "foo.txt"}, "foo", []string{"foo.abi3.so", "foo.cpython-311-x86_64-linux-gnu.so", "foo.so"}},
		{"byte code and stubs alone", []string{"foo.pyc", "foo.pyi", "foo.pyo"}, "foo", []string{"foo.pyc", "foo.pyi", "foo.pyo"}},
		{"a namespace package in two places", []string{"foo/one.py", "/top/foo/two.py"}, "foo", []string{site + "foo", "/top/foo"}},
		{"a file that is no module", []string{"foo", "foo-bar.py", "foo.d/x"}, "foo", nil},
		{"a module in a package", []string{"foo/__init__.py", "foo/bar/__init__.py", "foo/bar/baz.py", "foo/bar/__pycache__/baz.cpython-311.pyc"}, "foo.bar.baz", []string{
			"foo/bar/__pycache__/baz.cpython-311.pyc", "foo/bar/baz.py",
		}},
		{"a module in a package that is a file", []string{"foo.py", "bar.py"}, "foo.bar", nil},
		{"one of the modules of a distribution", []string{"foo.py", "bar.py", "both-1.dist-info/top_level.txt = foo\nbar\n"}, "foo", []string{"foo.py"}},
		{"all modules of a distribution", []string{"foo.py", "bar.py", "both-1.dist-info/top_level.txt = foo\nbar\n"}, "foo bar", []string{"bar.py", "both-1.dist-info", "foo.py"}},
		{"a distribution without top_level.txt", []string{"foo/a.py", "Other_Name-1.dist-info/RECORD = foo/a.py,sha256=x,1\n../../bin/x,,\n__pycache__/x.pyc,,\nOther_Name-1.dist-info/RECORD,,\n"}, "foo", []string{"Other_Name-1.dist-info", "foo"}},
		{"a distribution of the same name", []string{"f.o_o.egg-info", "f_o_o/x.py", "F.o.o-2.egg/f_o_o/y.py"}, "f_o_o", []string{"F.o.o-2.egg", "F.o.o-2.egg/f_o_o", "f.o_o.egg-info", "f_o_o"}},
		{"a standard library", []string{"/py/lib/python3.11/foo.py", "/py/lib/python3.11/lib-dynload/foo.so", "/py/lib/python3.11/deep/foo.py"}, "foo", []string{"/py/lib/python3.11/foo.py", "/py/lib/python3.11/lib-dynload/foo.so"}},
		{"what a .pth file adds", []string{"x.pth = # foo\nadded\n../more\nimport os\n", "added/foo.py", "../more/foo.py", "not/foo.py"}, "foo", []string{"/py/lib/python3.11/more/foo.py", "added/foo.py"}},
		{"the tops of grants", []string{"/top/foo.py", "/ws/foo/__init__.py", "/bound/foo.so", "/top/deep/foo.py"}, "foo", []string{"/bound/foo.so", "/top/foo.py", "/ws/foo"}},
		{"a grant that is one", []string{"/top/foo.py"}, "foo", []string{"/top/foo.py"}},
		{"a symlink", []string{"foo -> ../../../../top/lib/foo", "/top/lib/foo/__init__.py"}, "foo", []string{site + "foo", "/top/lib/foo"}},
		{"a symlink to a file", []string{"foo.py -> ../../../../top/lib/impl.py", "/top/lib/impl.py"}, "foo", []string{site + "foo.py", "/top/lib/impl.py"}},
		{"a symlink to where others are", []string{"foo -> ../../../..", "bar.py"}, "foo", []string{"foo"}},
		{"a symlink of a program", []string{"/ws/foo -> ../top/lib/foo", "/top/lib/foo/__init__.py"}, "foo", []string{"/ws/foo"}},
		{"other capitals", []string{"Foo.py", "FOO/__init__.py"}, "foo", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := []string{"top/x", "ws/x", "bound/x", "py/lib/python3.11/os.py"}
			content := map[string]string{}
			for _, f := range c.files {
				f, text, _ := strings.Cut(f, " = ")
				if name, abs := strings.CutPrefix(f, "/"); abs {
					f = name
				} else {
					f = filepath.Join(site, strings.Split(f, " -> ")[0]) + strings.TrimPrefix(f, strings.Split(f, " -> ")[0])
				}
				files = append(files, f)
				content[f] = text
			}
			dir := home(t, files...)
			for f, text := range content {
				if text != "" {
					if err := os.WriteFile(filepath.Join(dir, f), []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			at := func(name string) rootfs.Grant { return rootfs.Grant{Path: filepath.Join(dir, name)} }
			got := gone(t, dir, rootfs.Policy{
				Read: []rootfs.Grant{at("py"), at("top")}, Workspace: &rootfs.Workspace{Source: filepath.Join(dir, "ws")},
				Binds: []rootfs.Bind{{Source: filepath.Join(dir, "bound"), Target: "/b"}},
			}, strings.Fields(c.hide)...)
			var want []string
			for _, p := range c.want {
				switch name, abs := strings.CutPrefix(p, "/"); {
				case abs:
					want = append(want, name)
				case strings.HasPrefix(p, site):
					want = append(want, p)
				default:
					want = append(want, site+p)
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

// The bases show the system's interpreters, at their usual places.
func TestFindModulesOfBases(t *testing.T) {
	dir := home(t, "usr/lib/python3.11/foo.py", "usr/lib/python3/dist-packages/foo/x", "usr/local/lib/python3.12/site-packages/foo.py", "usr/lib/other/foo.py", "opt/py/lib/pypy3.9/foo.py")
	got := gone(t, dir, rootfs.Policy{Base: rootfs.Base{Kind: rootfs.BaseRootfs, Dir: dir}}, "foo")
	want := []string{"opt/py/lib/pypy3.9/foo.py", "usr/lib/python3.11/foo.py", "usr/lib/python3/dist-packages/foo", "usr/local/lib/python3.12/site-packages/foo.py"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := gone(t, dir, rootfs.Policy{}, "foo"); got != nil {
		t.Errorf("base none: %q", got)
	}
	if got := gone(t, dir, rootfs.Policy{}); got != nil {
		t.Errorf("nothing to hide: %q", got)
	}
}

// A file that is granted alone is one under its own name; a directory only if it is a package.
func TestFindModulesGrantedAlone(t *testing.T) {
	dir := home(t, "a/foo.py", "b/foo/__init__.py", "c/foo/x.txt")
	read := func(name string) []string {
		return gone(t, dir, rootfs.Policy{Read: []rootfs.Grant{{Path: filepath.Join(dir, name)}}}, "foo")
	}
	for name, want := range map[string][]string{"a/foo.py": {"a/foo.py"}, "b/foo": {"b/foo"}, "c/foo": nil} {
		if got := read(name); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestBuiltinModules(t *testing.T) {
	var got []string
	for _, it := range findModules(t, rootfs.Policy{}, "sys", "json", "os", "os.path", "math").Builtin {
		got = append(got, it.Name)
	}
	if want := []string{"sys", "os", "os.path", "math"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A program can make any number of modules, and write what it wants into a .pth file.
func TestFindModulesIsBounded(t *testing.T) {
	files := []string{"ws/lib/python3.11/site-packages/x.pth", "trusted/foo.py"}
	for i := range 3 * mostEmpty {
		files = append(files, fmt.Sprintf("ws/%d/python3/foo.py", i))
	}
	dir := home(t, files...)
	if err := os.WriteFile(filepath.Join(dir, files[0]), []byte(filepath.Join(dir, "elsewhere")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "elsewhere/foo"), 0o755); err != nil {
		t.Fatal(err)
	}
	found := findModules(t, rootfs.Policy{
		Write: []rootfs.Grant{{Path: filepath.Join(dir, "ws")}}, Read: []rootfs.Grant{{Path: filepath.Join(dir, "trusted")}},
	}, "foo")
	if len(found.Gone) != mostEmpty+1 || len(found.Partial) != 1 || !slices.ContainsFunc(found.Gone, func(g rootfs.Grant) bool { return g.Path == filepath.Join(dir, "trusted/foo.py") }) {
		t.Errorf("%d found, %d partial", len(found.Gone), len(found.Partial))
	}
	if slices.ContainsFunc(found.Gone, func(g rootfs.Grant) bool { return strings.Contains(g.Path, "elsewhere") }) {
		t.Error("a program's .pth file was followed")
	}
}
