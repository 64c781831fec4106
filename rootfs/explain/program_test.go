package explain

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/compile"
	"github.com/sandboxrun/sandboxrun/rootfs/elf"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
	"github.com/sandboxrun/sandboxrun/rootfs/survey"
)

// programHost is a host directory with programs, and what explains the view in which all of it is at /b.
func programHost(t *testing.T, files map[string]string) (*Explainer, string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		mode := os.FileMode(0o755)
		if strings.HasSuffix(name, ".txt") {
			mode = 0o644
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := survey.HostTree()
	if err != nil {
		t.Fatal(err)
	}
	p := rootfs.Policy{Base: rootfs.Base{Kind: rootfs.BaseNone}, Binds: []rootfs.Bind{{Source: filepath.Join(dir, "b"), Target: "/b", From: "here: bind"}}}
	v, err := compile.Compile(request(tree, p))
	if err != nil {
		t.Fatal(err)
	}
	who := Who{UID: os.Getuid(), GID: os.Getgid()}
	return &Explainer{View: v, Policy: p, Tree: tree, Who: who, Launcher: who}, dir
}

// fakeELF is the smallest program: 64 bits, this machine's kind, without any segment.
func fakeELF(machine byte) string {
	head := make([]byte, 64)
	copy(head, "\x7fELF\x02\x01\x01")
	head[16], head[18] = 2, machine
	return string(head)
}

func TestProgram(t *testing.T) {
	x, dir := programHost(t, map[string]string{
		"b/static": fakeELF(62), "b/arm": fakeELF(183), "b/plain.txt": "x", "b/text": "echo hello",
		"b/one": "#!/b/static -x\n", "b/two": "#! /b/one\n", "b/env": fakeELF(62), "b/viaenv": "#!/b/env static\n", "b/noenv": "#!/b/env -S nothing here\n",
		"b/relative": "#!static\n", "b/gone": "#!/b/nothing\n", "b/empty": "#!\n", "b/circle": "#!/b/circle\n", "b/bits.txt": "#!/b/static",
		"elsewhere/out": "#!/b/static\n",
	})
	for _, c := range []struct {
		name, is, why string
		needs         []string
		hint          string
	}{
		{"static", "inside, can be started", "/b/static is static", nil, ""},
		{"/b/static", "inside, can be started", "bind at here shows /b", nil, ""},
		{"./static", "inside, can be started", "", nil, ""},
		{"one", "inside, can be started", "PATH leads to /b/one", []string{"/b/static"}, ""},
		{"two", "inside, can be started", "", []string{"/b/one", "/b/static"}, ""},
		{"viaenv", "inside, can be started", "", []string{"/b/env", "static"}, ""},
		{"noenv", "inside, and cannot be started: nothing missing", "", []string{"/b/env", "nothing"}, ""},
		{"arm", "inside, and cannot be started", "another kind of machine (ELF machine 183, 64 bits)", nil, ""},
		{"text", "inside, and cannot be started", "neither an ELF file nor a script", nil, ""},
		{"relative", "inside, and cannot be started", "not an absolute path", nil, ""},
		{"empty", "inside, and cannot be started", "names no interpreter", nil, ""},
		{"gone", "inside, and cannot be started: /b/nothing missing", "", []string{"/b/nothing"}, ""},
		{"circle", "inside, and cannot be started", "interpreters of one another", []string{"/b/circle"}, ""},
		{"plain.txt", "inside, and cannot be executed", "without the permission", nil, ""},
		{"out", "not inside", "the host has it as " + dir + "/elsewhere/out", nil, `files.read = ["` + dir + `/elsewhere/out"]`},
		{"/b", "inside, and cannot be executed", "is a dir", nil, ""},
		{"nothing", "not inside", "in no directory of the program's PATH", nil, ""},
	} {
		p := x.Program(Asked{
			Name: c.name, Dir: "/b", Env: map[string]string{"PATH": "relative:/nowhere:/b"}, CallerPath: dir + "/elsewhere", Arch: "amd64",
		})
		var needs []string
		for _, n := range p.Needs {
			needs = append(needs, n.Name)
		}
		if why := strings.Join(p.Why, "; "); p.Is != c.is || !strings.Contains(why, c.why) || p.OK != (c.is == "inside, can be started") {
			t.Errorf("%s is %q (%v): %s", c.name, p.Is, p.OK, why)
		}
		roottest.Same(t, "needs of "+c.name, needs, c.needs)
		if p.Hint != c.hint {
			t.Errorf("%s: hint %s, want %s", c.name, p.Hint, c.hint)
		}
	}
}

func TestSearchPath(t *testing.T) {
	root := &object{path: "/b/prog", origin: "/b", needs: &elf.Needs{Class: 2, Machine: 62, Interp: "/lib64/ld-linux-x86-64.so.2", Rpath: []string{"$ORIGIN/r"}}}
	l := &loading{a: Asked{Dir: "/w", Env: map[string]string{"LD_LIBRARY_PATH": "/env:rel"}}}
	s := side{open: func(string) (hostfs.File, bool) { return nil, false }, cache: map[string][]string{"x": {"/cache/x"}}}
	defaults := []string{"/lib/x86_64-linux-gnu/x", "/usr/lib/x86_64-linux-gnu/x", "/lib64/x", "/usr/lib64/x", "/lib/x", "/usr/lib/x"}
	roottest.Same(t, "rpath", l.places(s, root, root, "x"), append([]string{"/b/r/x", "/env/x", "/w/rel/x", "/cache/x"}, defaults...))
	lib := &object{path: "/l/a", origin: "/l", needs: &elf.Needs{Class: 2, Machine: 62, Runpath: []string{"${ORIGIN}/${LIB}"}}, by: root}
	roottest.Same(t, "runpath", l.places(s, lib, root, "x"),
		append([]string{"/env/x", "/w/rel/x", "/l/lib/x86_64-linux-gnu/x", "/l/lib64/x", "/cache/x"}, defaults...))
	lib.needs.Nodeflib = true
	roottest.Same(t, "no defaults", l.places(s, lib, root, "x"), []string{"/env/x", "/w/rel/x", "/l/lib/x86_64-linux-gnu/x", "/l/lib64/x"})
	root.needs.Interp = "/lib/ld-musl-x86_64.so.1"
	roottest.Same(t, "musl", l.places(s, root, root, "x"), []string{"/env/x", "/w/rel/x", "/b/r/x", "/lib/x", "/usr/local/lib/x", "/usr/lib/x"})
	for name, own := range map[string]bool{"libc.so": true, "libc.musl-x86_64.so.1": true, "libpthread.so.0": true, "libcrypt.so.1": false, "c.so": false} {
		if isMuslItself(name) != own {
			t.Errorf("%s is of musl: %v", name, !own)
		}
	}
}

// TestOriginWithoutProc: the loader does not know $ORIGIN of the program itself then, unless a variable says it.
func TestOriginWithoutProc(t *testing.T) {
	needs := func(interp string) *elf.Needs {
		return &elf.Needs{Class: 2, Machine: 62, Interp: interp, Rpath: []string{"$ORIGIN/r"}}
	}
	const glibc, musl = "/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"
	for _, c := range []struct {
		interp, variable, origin, hint string
		says                           bool
	}{
		{glibc, "", "", `env.set = { LD_ORIGIN_PATH = "/b" }`, true}, {glibc, "/b", "/b", "", false}, {musl, "/b", "", "", true},
	} {
		root := &object{path: "/b/prog", origin: "/b", needs: needs(c.interp)}
		l := &loading{Explainer: &Explainer{NoProc: true}, p: &Program{}, a: Asked{Dir: "/w", Env: map[string]string{"LD_ORIGIN_PATH": c.variable}}}
		l.withoutProc(root)
		places := l.places(side{open: func(string) (hostfs.File, bool) { return nil, false }}, root, root, "x")
		if root.origin != c.origin || l.p.Hint != c.hint || len(l.p.Why) > 0 != c.says || slices.Contains(places, "/b/r/x") != (c.origin != "") || slices.Contains(places, "/r/x") {
			t.Errorf("%+v: origin %q, hint %q, %q, %q", c, root.origin, l.p.Hint, l.p.Why, places)
		}
	}
}
