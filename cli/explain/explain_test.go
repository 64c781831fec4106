package explain

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/plan"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/explain"
	"github.com/sandboxrun/sandboxrun/rootfs/survey"
	"github.com/sandboxrun/sandboxrun/spec"
)

func TestClassify(t *testing.T) {
	for arg, want := range map[string]string{
		"/a": askPath, "./a": askPath, "a/b": askPath, ".": askPath, "..": askPath, "~": askPath, "~/x": askPath, ".hidden": askPath, "a/b:80": askPath,
		"/A": askPath, "example.com:443": askHost, "localhost:8000": askHost, "[::1]:80": askHost, "10.0.0.1:1": askHost, "HOST:80": askHost,
		"HOME": askEnv, "LC_ALL": askEnv, "_X1": askEnv,
		"home": "", "1X": "", "::1": "", "http://x:80/": "", "https://x": "", "a:b": "", ":80": "", "a b": "", "": "", "x:+8": "", "x:-1": "", "::1:80": "",
	} {
		got, err := Classify(arg)
		if got.kind != want || (want == "") != (err != nil) {
			t.Errorf("%q is a %q: %v", arg, got.kind, err)
		}
	}
}

// asker answers for a policy with names that are hard to write down.
func asker(t *testing.T) *Explainer {
	t.Helper()
	dir := t.TempDir()
	odd := "<script>alert(\"1\")</script> & 'q'\n\x1b[31m\u202e"
	if err := os.WriteFile(filepath.Join(dir, "<b>&\"'\n\x1b"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p := &caller.Caller{Env: map[string]string{"HOME": "/h"}, Cwd: "/w"}
	v := &rootfs.View{
		Entries: []rootfs.Entry{{Path: "/", Kind: rootfs.EntryDir}, {Path: "/link", Kind: rootfs.EntrySymlink, Content: "\xff<i>"}, {Path: "/x", Kind: rootfs.EntryDir}},
		Mounts: []rootfs.Mount{
			{Kind: rootfs.MountBind, Source: dir, Target: "/x", Dir: true, Writable: true, From: "<p>.toml:1:2: files.write"},
			{Kind: rootfs.MountMask, Target: "/x/" + odd, From: "deny"},
			{Kind: rootfs.MountTmpfs, Target: "/x/tmp", Dir: true, Mode: 0o777, Size: 1 << 20},
		},
	}
	tree, err := survey.HostTree()
	if err != nil {
		t.Fatal(err)
	}
	asked := rootfs.Policy{Write: []rootfs.Grant{{Path: "/x", From: "<p>.toml:1:2: files.write"}}, Deny: []rootfs.Grant{{Path: "/x/" + odd, From: "deny"}}}
	made := &spec.Plan{View: v, PolicyFile: "<p>&\"\n.toml", PolicyDigest: "d"}
	return &Explainer{Caller: p, d: plan.Decision{Plan: made}, files: &explain.Explainer{View: v, Policy: asked, Tree: tree}}
}

// The page is well formed, holds all names as text, and takes nothing from elsewhere.
func TestHTML(t *testing.T) {
	x := asker(t)
	file := filepath.Join(t.TempDir(), "view.html")
	for range 2 { // it is replaced
		if err := x.html(file); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dec := xml.NewDecoder(strings.NewReader(string(data)))
	dec.Strict, dec.AutoClose, dec.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	text := ""
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		switch v := token.(type) {
		case xml.CharData:
			text += string(v)
		case xml.StartElement:
			for _, a := range v.Attr {
				if n := a.Name.Local; n == "src" || n == "href" || strings.HasPrefix(n, "on") {
					t.Errorf("<%s> has %s=%q", v.Name.Local, n, a.Value)
				}
			}
			if slices.Contains([]string{"script", "link", "img", "iframe", "object", "b", "i", "p"}, v.Name.Local) {
				t.Errorf("there is a <%s>", v.Name.Local)
			}
		}
	}
	for _, want := range []string{
		`"<script>alert(\"1\")</script> & 'q'\n\x1b[31m\u202e"`, `link → "\xff<i>"`, "files.write  <p>.toml:1:2", "denied", "memory", "files.write",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the page:\n%s", want, text)
		}
	}
	if strings.ContainsAny(text, "\x1b\u202e") {
		t.Error("a name steers what shows the page")
	}
	left, _ := os.ReadDir(filepath.Dir(file))
	if len(left) != 1 {
		t.Errorf("left are %v", left)
	}
	if err := x.html(filepath.Join(file, "no", "x.html")); err == nil {
		t.Error("a page was written into nothing")
	}
}

func TestTreeLines(t *testing.T) {
	lines := treeLines(asker(t).files.Nodes(), false)
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		"├── dev/ ", `├── link → "\xff<i>"`, "└── x/ ", "    ├── \"<script>", "    └── tmp/ ", "  rw  memory       1M", "  --  denied           files.deny  deny",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.ContainsAny(text, "\x1b\u202e") {
		t.Error("a name steers the terminal")
	}
	if coloured := strings.Join(treeLines(asker(t).files.Nodes(), true), "\n"); strings.Count(coloured, "\x1b[31m") != 1 || strings.Count(coloured, "\x1b[36m") != 1 {
		t.Errorf("%q", coloured)
	}
}

func TestAbsolute(t *testing.T) {
	x := asker(t)
	for name, want := range map[string]string{
		"/a/../b": "/a/../b", "./a": "/w/a", "a/..": "/w/a/..", "..": "/w/..", "~": "/h/", "~/x": "/h/x", "~bob/x": "",
	} {
		got, err := x.absolute(name)
		if got != want || (want == "") != (err != nil) {
			t.Errorf("%q is %q, %v", name, got, err)
		}
	}
}
