package rootfs

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// systemPrograms are real ELF files, where the machine has some.
func systemPrograms(t testing.TB) []string {
	t.Helper()
	var list []string
	for _, pattern := range []string{"/usr/bin/*", "/usr/lib/*-linux-gnu/*.so*", "/usr/lib64/*.so*"} {
		files, _ := filepath.Glob(pattern)
		for i := 0; i < len(files); i += 1 + len(files)/25 {
			if info, err := os.Stat(files[i]); err == nil && info.Mode().IsRegular() {
				list = append(list, files[i])
			}
		}
	}
	return list
}

// TestReadELF compares with the standard library's reader.
func TestReadELF(t *testing.T) {
	read := 0
	for _, name := range systemPrograms(t) {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		want, wantErr := elf.NewFile(f)
		got, err := readELF(f)
		t.Cleanup(func() { f.Close() }) // the other reads on later
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%s: %v, but %v", name, err, wantErr)
			continue
		}
		if err != nil {
			continue
		}
		read++
		needed, _ := want.ImportedLibraries()
		runpath, _ := want.DynString(elf.DT_RUNPATH)
		rpath, _ := want.DynString(elf.DT_RPATH)
		interp := ""
		if s := want.Section(".interp"); s != nil {
			data, _ := s.Data()
			interp = string(bytes.TrimRight(data, "\x00"))
		}
		if !slices.Equal(got.needed, needed) || got.interp != interp || strings.Join(got.runpath, ":") != strings.Join(runpath, ":") ||
			strings.Join(got.rpath, ":") != strings.Join(rpath, ":") || got.machine != int(want.Machine) || got.class != int(want.Class) {
			t.Errorf("%s: %+v; want %q %q %q %q", name, got, needed, interp, runpath, rpath)
		}
	}
	if read == 0 {
		t.Skip("no ELF file is here")
	}
	t.Logf("%d files", read)
}

// FuzzReadELF: whatever stands in a file, it is read within bounds.
func FuzzReadELF(f *testing.F) {
	f.Add([]byte("\x7fELF"))
	for _, name := range systemPrograms(f)[:min(8, len(systemPrograms(f)))] {
		if data, err := os.ReadFile(name); err == nil {
			f.Add(data[:min(len(data), 4096)])
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := readELF(bytes.NewReader(data))
		if err == nil && len(n.needed) > maxELFNeeds {
			t.Error("too much was read")
		}
		parseLdCache(data)
	})
}

func TestParseLdCache(t *testing.T) {
	le := binary.LittleEndian
	text := "liba.so.1\x00/lib/liba.so.1\x00/opt/liba.so.1\x00"
	const head, entry = 48, 24
	data := append([]byte("glibc-ld.so.cache1.1"), make([]byte, head-20+2*entry)...)
	le.PutUint32(data[20:], 2)
	at := uint32(len(data))
	for i, p := range []uint32{10, 25} {
		le.PutUint32(data[head+i*entry+4:], at)
		le.PutUint32(data[head+i*entry+8:], at+p)
	}
	data = append(data, text...)
	old := append([]byte("ld.so-1.7.0\x00\x00\x00\x00\x00"), data...)
	for _, d := range [][]byte{data, old} {
		same(t, "paths", parseLdCache(d)["liba.so.1"], []string{"/lib/liba.so.1", "/opt/liba.so.1"})
	}
	for i := range data {
		parseLdCache(data[:i])
	}
	if real, err := os.ReadFile("/etc/ld.so.cache"); err == nil && len(parseLdCache(real)["libc.so.6"]) == 0 && bytes.Contains(real, []byte("libc.so.6\x00")) {
		t.Error("this machine's cache has a libc.so.6 that is not found")
	}
}

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
	tree, err := HostTree()
	if err != nil {
		t.Fatal(err)
	}
	p := Policy{Base: Base{Kind: BaseNone}, Binds: []Bind{{Source: filepath.Join(dir, "b"), Target: "/b", From: "here: bind"}}}
	v, err := Compile(request(tree, p))
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
		same(t, "needs of "+c.name, needs, c.needs)
		if p.Hint != c.hint {
			t.Errorf("%s: hint %s, want %s", c.name, p.Hint, c.hint)
		}
	}
}

func TestSearchPlaces(t *testing.T) {
	root := &object{path: "/b/prog", origin: "/b", needs: &elfNeeds{class: 2, machine: 62, interp: "/lib64/ld-linux-x86-64.so.2", rpath: []string{"$ORIGIN/r"}}}
	l := &loading{a: Asked{Dir: "/w", Env: map[string]string{"LD_LIBRARY_PATH": "/env:rel"}}}
	s := side{open: func(string) (File, bool) { return nil, false }, cache: map[string][]string{"x": {"/cache/x"}}}
	defaults := []string{"/lib/x86_64-linux-gnu/x", "/usr/lib/x86_64-linux-gnu/x", "/lib64/x", "/usr/lib64/x", "/lib/x", "/usr/lib/x"}
	same(t, "rpath", l.places(s, root, root, "x"), append([]string{"/b/r/x", "/env/x", "/w/rel/x", "/cache/x"}, defaults...))
	lib := &object{path: "/l/a", origin: "/l", needs: &elfNeeds{class: 2, machine: 62, runpath: []string{"${ORIGIN}/${LIB}"}}, by: root}
	same(t, "runpath", l.places(s, lib, root, "x"),
		append([]string{"/env/x", "/w/rel/x", "/l/lib/x86_64-linux-gnu/x", "/l/lib64/x", "/cache/x"}, defaults...))
	lib.needs.nodeflib = true
	same(t, "no defaults", l.places(s, lib, root, "x"), []string{"/env/x", "/w/rel/x", "/l/lib/x86_64-linux-gnu/x", "/l/lib64/x"})
	root.needs.interp = "/lib/ld-musl-x86_64.so.1"
	same(t, "musl", l.places(s, root, root, "x"), []string{"/env/x", "/w/rel/x", "/b/r/x", "/lib/x", "/usr/local/lib/x", "/usr/lib/x"})
}
