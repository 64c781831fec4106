package integration

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// seeModules prints what a Python finds of modules, and of files by their paths.
const seeModules = `
import importlib, importlib.util, json, os, subprocess, sys
asked = json.loads(sys.argv[1])
sys.path[:0] = asked["path"] or []
out = {}
def attempt(f):
    try: return f()
    except BaseException as e: return type(e).__name__
for m in asked["modules"] or []:
    spec = attempt(lambda: importlib.util.find_spec(m))
    out[m] = [spec if spec is None or isinstance(spec, str) else "spec", attempt(lambda: importlib.import_module(m) and "imported")]
def read(p): return "directory" if os.path.isdir(p) else str(len(open(p, "rb").read()))
def other(p): # another process, that opens the path itself
    r = subprocess.run(["cat", p], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return "read" if r.returncode == 0 else r.stderr.split(": ")[-1].strip()
for p in asked["paths"] or []:
    out[p] = [attempt(lambda: read(p)), other(p), attempt(lambda: os.path.basename(p) in os.listdir(os.path.dirname(p)))]
print(json.dumps(out))
`

// modulesBox has an environment with modules of every kind, grants with copies and further names of them, and a workspace.
type modulesBox struct {
	*box
	python, site, lib string // lib has extension modules of the system
	modules, paths    []string
	files             object
	asked             string // the last policy
}

func newModulesBox(b *box) *modulesBox {
	p := b.pythons()
	m := &modulesBox{box: b, python: p.program("debvenv"), site: p.sites["debvenv"]}
	m.lib = strings.TrimSpace(p.do("/usr/bin/python3", "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))")) + "/lib-dynload"
	extension, _ := filepath.Glob(m.lib + "/_lzma.*.so")
	if len(extension) != 1 {
		b.t.Fatalf("extension modules: %q", extension)
	}
	site := func(name, content string) string {
		p.write(m.site, name, content)
		return filepath.Join(m.site, name)
	}
	m.paths = []string{
		site("pack/__init__.py", "V = 1"), site("pack/data.txt", "data"), site("pack-1.0.dist-info/top_level.txt", "pack\n"),
		site("single.py", "V = 1"), site("spread/one.py", "V = 1"), site("outer/inner/__init__.py", "V = 1"), site("outer/leaf.py", "V = 1"),
		extension[0], b.file("copy/single.py", "V = 2"), b.file("copy/spread/two.py", "V = 2"),
	}
	site("outer/__init__.py", "V = 1")
	site("beside.py", "V = 1")
	p.do(m.python, "-m", "compileall", "-q", m.site)
	cache, _ := filepath.Glob(m.site + "/__pycache__/single.*.pyc")
	b.mkdir("linked")
	b.mustDo(os.Link(filepath.Join(m.site, "single.py"), b.path("linked/other.name")))
	b.link("copy/aliased", b.path("target/aliased"))
	b.file("copy/denied.txt", "denied")
	m.paths = append(append(m.paths, cache...), b.path("linked/other.name"), b.path("copy/aliased"), b.file("target/aliased/__init__.py", "V = 1"))
	for _, name := range []string{"pack/__init__.py", "single.py", "outer/leaf.py"} {
		m.paths = append(m.paths, "/again/"+name)
	}
	m.modules = []string{"pack", "single", "spread", "spread.one", "outer.inner", "outer.leaf", "_lzma", "aliased"}
	m.files = object{
		"interpreters": []string{m.python}, "read": []string{b.path("copy"), b.path("linked"), b.path("target")}, "write": []string{b.mkdir("copy/out")},
		"deny": []string{b.path("copy/denied.txt")}, "hide_modules": []string{"pack", "single", "spread", "outer.inner", "outer.leaf", "_lzma", "aliased"},
	}
	return m
}

// create makes a sandbox with the modules hidden, or without the key.
func (m *modulesBox) create(c call, id string, hidden bool) *answer {
	m.t.Helper()
	files := maps.Clone(m.files)
	if !hidden {
		delete(files, "hide_modules")
	}
	m.asked = m.policy(object{"files": files, "workspace": object{"source": m.mkdir("ws"), "path": "/w"}, "bind": []object{{"source": m.site, "target": "/again"}}})
	return m.call(c, "create", "--policy", m.asked, id).exits(0)
}

// look is what a program of a sandbox finds.
func (m *modulesBox) look(id string, modules, paths, path []string, options ...string) map[string][]any {
	m.t.Helper()
	asked, err := json.Marshal(object{"modules": modules, "paths": paths, "path": path})
	m.mustDo(err)
	a := m.run(slices.Concat([]string{"exec"}, options, []string{id, "--", m.python, "-B", "-c", seeModules, string(asked)})...).exits(0)
	out := map[string][]any{}
	m.mustDo(json.Unmarshal([]byte(a.stdout), &out))
	return out
}

// TestHideModules: hidden modules do not exist for the program, by whatever name; all beside them is as it was.
func TestHideModules(t *testing.T) {
	flavours(t, func(b *box) {
		m := newModulesBox(b)
		m.create(call{}, "control", false)
		if a := m.create(call{}, "box", true); a.stderr != "" {
			b.t.Errorf("said: %s", a.stderr)
		}
		paths := []string{b.path("copy"), b.path("target")}
		for name, got := range m.look("control", m.modules, m.paths, paths) {
			if len(got) == 2 && got[1] != "imported" || len(got) == 3 && (got[1] != "read" && got[0] != "directory" || got[2] != true) {
				b.t.Errorf("without the key: %s: %v", name, got)
			}
		}
		for name, got := range m.look("box", m.modules, m.paths, paths) {
			gone := len(got) == 2 && got[1] == "ModuleNotFoundError" && (got[0] == nil || name == "spread.one" && got[0] == "ModuleNotFoundError")
			// The directory of a path is absent where it is a module's.
			absent := len(got) == 3 && got[0] == "FileNotFoundError" && got[1] == "No such file or directory" && (got[2] == false || got[2] == "FileNotFoundError")
			if !gone && !absent {
				b.t.Errorf("%s: %v", name, got)
			}
		}
		got := m.look("box", []string{"outer", "beside", "_bz2"}, []string{b.path("copy/denied.txt"), filepath.Join(m.site, "beside.py")}, nil)
		if got["outer"][1] != "imported" || got["beside"][1] != "imported" || got["_bz2"][1] != "imported" || got[filepath.Join(m.site, "beside.py")][1] != "read" {
			b.t.Errorf("beside it: %v", got)
		}
		if d := got[b.path("copy/denied.txt")]; d[0] != "PermissionError" {
			b.t.Errorf("a denied file in the same directory: %v", d)
		}
		b.run("exec", "box", "--", "sh", "-c", "echo 1 >"+b.path("copy/out/new")+" && ! touch "+b.path("copy/new")+" 2>/dev/null").exits(0)
		b.run("explain", "--policy", m.asked, b.path("copy/single.py")).exits(1).prints("not inside", "files.hide_modules", "a module that it names")
		state := b.run("state", "box").exits(0)
		state.prints(`"name":"modules_absent","layer":"overlays","result":"held"`).prints(`"name":"deny_unreadable","layer":"masks","result":"held"`)
	})
}

// TestHideModulesEmpty: where no overlay can be mounted, and where programs write, modules are empty, and that is said.
func TestHideModulesEmpty(t *testing.T) {
	binary := sabotagedBinary(t)
	flavours(t, func(b *box) {
		m := newModulesBox(b)
		b.file("ws/single.py", "V = 3")
		m.create(call{}, "written", true).complains("files.hide_modules: a program finds empty what should be absent in \"/w\" (single.py): the policy lets programs write there")
		if got := m.look("written", nil, []string{"/w/single.py"}, nil)["/w/single.py"]; got[0] != "0" || got[1] != "read" {
			b.t.Errorf("in the workspace: %v", got)
		}
		b.run("exec", "written", "--", "sh", "-c", "echo V=4 >/w/single.py; rm -f /w/single.py; true").exits(0)
		if b.read(b.path("ws/single.py")) != "V = 3" {
			b.t.Error("the program has changed a hidden file")
		}
		product := w.binary
		w.binary = binary
		defer func() { w.binary = product }()
		m.create(call{env: []string{"SANDBOXRUN_SABOTAGE=overlays"}}, "box", true).complains("in \"/again\" (", "pack, pack-1.0.dist-info", "no overlay can be mounted over the directory: no such device")
		for name, got := range m.look("box", nil, m.paths, nil) {
			if got[0] != "0" && got[0] != "FileNotFoundError" && got[0] != "NotADirectoryError" || got[1] == "Permission denied" {
				b.t.Errorf("%s: %v", name, got)
			}
		}
		got := m.look("box", []string{"pack", "pack.data", "single", "spread.one", "outer.inner", "_lzma", "beside"}, nil, nil)
		for name, want := range map[string]string{"pack": "imported", "pack.data": "ModuleNotFoundError", "single": "imported", "spread.one": "ModuleNotFoundError", "_lzma": "ImportError", "beside": "imported"} {
			if got[name][1] != want {
				b.t.Errorf("%s: %v", name, got[name])
			}
		}
		b.run("state", "box").exits(0).prints(`"name":"deny_unreadable","layer":"masks","result":"held"`, `"what":`, "files.hide_modules")
	})
}

// TestHideModulesInViews: what one exec alone sees has no hidden module either.
func TestHideModulesInViews(t *testing.T) {
	flavours(t, func(b *box) {
		m := newModulesBox(b)
		m.create(call{}, "box", true)
		b.file("more/single.py", "V = 5")
		b.file("more/pack/__init__.py", "V = 5")
		seen := []string{b.path("more/single.py"), "/third/single.py", "/third/beside.py", filepath.Join(m.site, "single.py")}
		got := m.look("box", []string{"pack", "single"}, seen, nil, "--read", b.path("more"), "--bind", m.site+":/third")
		want := map[string]string{seen[0]: "0", seen[1]: "0", seen[2]: "5", seen[3]: "FileNotFoundError"}
		for name, text := range want {
			if got[name][0] != text {
				b.t.Errorf("%s: %v", name, got[name])
			}
		}
		if got["pack"][1] != "ModuleNotFoundError" || got["single"][1] != "ModuleNotFoundError" {
			b.t.Errorf("in the sandbox's own directories: %v", got)
		}
		b.run("exec", "--read", b.path("more"), "box", "true").exits(0).complains("one exec alone sees it there")
	})
}
