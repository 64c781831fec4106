package interp

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/survey"
)

// home makes files and symlinks ("NAME -> TARGET") in a directory.
func home(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		name, target, link := strings.Cut(name, " -> ")
		p := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		switch {
		case err != nil:
		case link:
			err = os.Symlink(target, p)
		default:
			err = os.WriteFile(p, nil, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// find lists what is shown and what is empty, relative to the directory.
func find(t *testing.T, dir string, files rootfs.Policy, names ...string) (read, empty []string, err error) {
	t.Helper()
	tree, err := survey.HostTree()
	if err != nil {
		t.Fatal(err)
	}
	r := Request{Files: files, Tree: tree, Env: map[string]string{"HOME": dir, "PATH": filepath.Join(dir, "bin")}}
	r.Files.Base.Kind = rootfs.BaseNone
	for _, name := range names {
		if strings.Contains(name, "/") {
			name = filepath.Join(dir, name)
		}
		r.Interpreters = append(r.Interpreters, Item{Name: name, From: "p"})
	}
	found, err := Find(r)
	if err != nil {
		return nil, nil, err
	}
	relative := func(grants []rootfs.Grant) []string {
		var list []string
		for _, g := range grants {
			rel, err := filepath.Rel(dir, g.Path)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, rel)
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	return relative(found.Read), relative(found.Empty), nil
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		what        string
		files       []string
		named       []string
		read, empty []string
	}{
		{
			"a prefix that has other things is shown in parts",
			[]string{
				".local/bin/python3 -> python3.12", ".local/bin/python3.12", ".local/bin/tool", ".local/lib/python3.12/os.py",
				".local/lib/python3.11/os.py", ".local/share/keyrings/login", ".local/lib/libpython3.12.so",
			},
			[]string{".local/bin/python3"},
			[]string{".local/bin/python3", ".local/bin/python3.12", ".local/lib/libpython3.12.so", ".local/lib/python3.12"},
			nil,
		},
		{
			"a home is never shown as a whole",
			[]string{"bin/python3", "lib/python3.12/os.py", "secret"},
			[]string{"python3"},
			[]string{"bin/python3", "lib/python3.12"},
			nil,
		},
		{
			"an installation of its own is shown as a whole, under the name that its environment has",
			[]string{
				"uv/cpython-3.12 -> cpython-3.12.4", "uv/cpython-3.12.4/bin/python3", "uv/cpython-3.12.4/lib/python3.12/os.py",
				"uv/cpython-3.12.4/lib/python3.12/site-packages/x.py",
				"v/bin/python -> ../../uv/cpython-3.12/bin/python3", "v/pyvenv.cfg", "v/lib/python3.12/site-packages/y.py",
			},
			[]string{"v/"},
			[]string{"uv/cpython-3.12", "uv/cpython-3.12/bin/python3", "v", "v/bin/python", "v/lib/python3.12/site-packages"},
			[]string{"uv/cpython-3.12.4/lib/python3.12/site-packages"},
		},
		{
			"environments of conda beside the base are not shown",
			[]string{
				"conda/conda-meta/history", "conda/bin/python3", "conda/lib/python3.12/os.py", "conda/envs/other/lib/python3.12/site-packages/z.py",
				"conda/pkgs/z-1/lib/python3.12/site-packages/z.py",
			},
			[]string{"conda/"},
			[]string{"conda/bin", "conda/bin/python3", "conda/conda-meta", "conda/lib"},
			nil,
		},
		{
			"Node.js of nvm",
			[]string{".nvm/versions/node/v20.1.0/bin/node", ".nvm/versions/node/v18.0.0/bin/node"},
			[]string{".nvm/versions/node/v20.1.0/"},
			[]string{".nvm/versions/node/v20.1.0", ".nvm/versions/node/v20.1.0/bin/node"},
			nil,
		},
	} {
		dir := home(t, c.files...)
		if _, err := os.Stat(filepath.Join(dir, "v")); err == nil {
			if err := os.WriteFile(filepath.Join(dir, "v/pyvenv.cfg"), []byte("home = "+dir+"/uv/cpython-3.12/bin\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		read, empty, err := find(t, dir, rootfs.Policy{}, c.named...)
		if err != nil || !slices.Equal(read, c.read) || !slices.Equal(empty, c.empty) {
			t.Errorf("%s: %v\n read  %q\n want  %q\n empty %q\n want  %q", c.what, err, read, c.read, empty, c.empty)
		}
	}
}

// TestFindFollowsNothingElse: the installation may be the work of a program that had another policy. Symlinks in it lead to nothing of the
// host that belongs to no interpreter.
func TestFindFollowsNothingElse(t *testing.T) {
	base := []string{
		"fake/bin/python3.12", "fake/lib/python3.12/os.py", "private-1.0/secret", "private-1.0/node", "other-3.12/bin/python3",
		"other-3.12/lib/python3.12/os.py", "other-3.12/lib/python3.12/site-packages/x.py", "v/pyvenv.cfg",
	}
	for _, link := range []string{
		"fake/bin/python3 -> ../../private-1.0/secret", "fake/include/python3.12 -> ../../private-1.0", "fake/lib/libpython3.so -> ../../private-1.0/secret",
		"fake/lib/python3.11 -> ../../private-1.0", "fake/lib/python3/dist-packages -> ../../../private-1.0",
		"fake/local/lib/python3.12/dist-packages -> ../../../../../private-1.0", "v/bin/python -> ../../private-1.0/secret",
		"fake/bin/pip -> ../../private-1.0/secret", "fake/lib/python3.12/site-packages -> ../../../private-1.0",
		"v/lib/python3.12/site-packages -> ../../../other-3.12/lib/python3.12/site-packages",
	} {
		files := append(slices.Clone(base), link)
		if strings.HasPrefix(link, "v/lib") {
			files = append(files, "v/bin/python -> ../../fake/bin/python3.12")
		}
		dir := home(t, files...)
		if err := os.WriteFile(filepath.Join(dir, "v/pyvenv.cfg"), []byte("home = "+dir+"/fake/bin\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		named := "fake/bin/python3.12"
		if strings.HasPrefix(link, "v/") {
			named = "v/bin/python"
		}
		read, _, err := find(t, dir, rootfs.Policy{Read: []rootfs.Grant{{Path: filepath.Join(dir, "other-3.12")}}}, named)
		if err != nil {
			t.Errorf("%s: %v", link, err)
		}
		for _, p := range read {
			real, err := filepath.EvalSymlinks(filepath.Join(dir, p))
			if err == nil && (strings.Contains(real, "private") || strings.Contains(real, "other-")) {
				t.Errorf("%s: %s is shown, which is %s", link, p, real)
			}
		}
	}
	dir := home(t, append(base, "bin/node -> ../private-1.0/secret")...)
	if read, _, err := find(t, dir, rootfs.Policy{}, "bin/node"); err == nil {
		t.Errorf("a node that is none: %q", read)
	}
}

// TestFindIsBounded: a program may make any number of site directories in a writable grant. They take no more mounts than a few.
func TestFindIsBounded(t *testing.T) {
	files := []string{"i-3.12/bin/python3", "i-3.12/lib/python3.12/os.py"}
	for i := range mostEmpty + 50 {
		files = append(files, "work/"+strings.Repeat("a", i%200+1)+"/"+string(rune('b'+i/200))+"/python3/site-packages/x")
	}
	dir := home(t, files...)
	write := []rootfs.Grant{{Path: filepath.Join(dir, "work")}}
	_, empty, err := find(t, dir, rootfs.Policy{Write: write}, "i-3.12/bin/python3")
	if err != nil || len(empty) != mostEmpty {
		t.Errorf("%d, %v", len(empty), err)
	}
	if _, _, err := find(t, dir, rootfs.Policy{Write: []rootfs.Grant{{Path: dir}}}, "i-3.12/bin/python3"); err == nil {
		t.Error("an interpreter that the policy lets programs replace is shown")
	}
}

func TestFindErrors(t *testing.T) {
	dir := home(t, "bin/tool", "empty/x")
	for named, want := range map[string]string{
		"python4": "is in no directory of PATH", "none/python": "does not exist", "bin/tool": "is no interpreter", "empty/": "has no bin/python3",
	} {
		if _, _, err := find(t, dir, rootfs.Policy{}, named); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", named, err)
		}
	}
}
