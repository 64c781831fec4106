package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestExtends(t *testing.T) {
	in := withFiles(input("task.toml", `version = 1
extends = "base/base.toml"
user = "root"
[workspace]
path = "/x"
[files]
read = ["own"]
[env]
allow = ["OWN", "LANG"]
set = { B = "own", C = "own" }
[network]
ports = [2]
[[bind]]
source = "own"
target = "/own"
`), map[string]string{"/p/base/base.toml": `version = 1
extends = "../deeper.json"
user = 5
name = "base"
workdir = "w"
[workspace]
source = "ws"
path = "/w"
[files]
base = "none"
read = ["a"]
[env]
set = { A = "base", B = "base" }
redact = false
[network]
mode = "public"
ports = [1]
[[bind]]
source = "b"
target = "/b"
`, "/p/deeper.json": `{"version": 1, "extends": "default", "files": {"read": ["deep"], "missing": "skip"}, "name": "deep"}`})
	p := mustLoad(t, in)
	paths := ""
	for _, g := range p.Files.Read {
		paths += g.Path + " " + g.From + "\n"
	}
	for _, b := range p.Files.Binds {
		paths += b.Source + " " + b.From + "\n"
	}
	want := `/p/deep /p/deeper.json:1:57: files.read
/p/base/a /p/base/base.toml:11:9: files.read
/p/own task.toml:7:9: files.read
/p/base/b /p/base/base.toml:18:3: bind
/p/own task.toml:13:3: bind
`
	if paths != want {
		t.Errorf("got\n%s\nwant\n%s", paths, want)
	}
	if w := p.Files.Workspace; w.Source != "/p/base/ws" || w.Path != "/x" || p.Files.Workdir.Path != "/p/base/w" {
		t.Errorf("workspace is %+v, workdir %+v", w, p.Files.Workdir)
	}
	if p.User.Kind != "root" || p.Name != "base" || p.Files.Missing != "skip" || p.Files.Base.Kind != "none" || p.Env.Redact {
		t.Errorf("got %+v", p)
	}
	if !maps.Equal(p.Env.Set, map[string]string{"A": "base", "B": "own", "C": "own"}) {
		t.Errorf("env.set is %v", p.Env.Set)
	}
	if want := []string{"LANG", "LC_*", "TERM", "TZ", "NO_COLOR", "OWN"}; !slices.Equal(p.Env.Allow, want) {
		t.Errorf("env.allow is %q", p.Env.Allow)
	}
	if p.Network.Mode != "public" || len(p.Network.Ports) != 2 || p.Network.Ports[0].Inside != 1 {
		t.Errorf("network is %+v", p.Network)
	}
	sources := []string{"task.toml", "/p/base/base.toml", "/p/deeper.json", "preset default"}
	if !slices.Equal(p.Sources, sources) {
		t.Errorf("sources are %q", p.Sources)
	}
}

func TestExtendsViewsMerge(t *testing.T) {
	in := withFiles(input("task.toml", "version = 1\nextends = './b.toml'\n[views.a]\nread = ['x']\n[views.c]\n"),
		map[string]string{"/p/b.toml": "version = 1\n[views.a]\nread = ['y']\n[views.b]\n"})
	p, err := Load(in)
	if err != nil {
		t.Fatal(err)
	}
	if a := p.Views["a"].Read; len(a) != 2 || a[0].Path != "/p/y" || a[1].Path != "/p/x" || len(p.Views) != 3 {
		t.Errorf("views are %+v", p.Views)
	}
}

func TestExtendsProblems(t *testing.T) {
	files := map[string]string{
		"/p/a.toml":    "version = 1\nextends = 'b.toml'\n",
		"/p/b.toml":    "version = 1\nextends = './a.toml'\n",
		"/p/self.toml": "version = 1\nextends = 'self.toml'\n",
		"/p/old.toml":  "user = 1\n",
		"/p/bad.toml":  "version = 1\n[files]\nraed = []\n",
		"/p/x.json":    "{\"version\": 1,\n\"raed\": 1}",
		"/p/ws.toml":   "version = 1\n[workspace]\nsource = 'tmpfs'\nsize = 4096\n",
		"/p/port.toml": "version = 1\n[network]\nports = [80]\n",
	}
	for i := range 10 {
		files[fmt.Sprintf("/p/%d.toml", i)] = fmt.Sprintf("version = 1\nextends = '%d.toml'\n", i+1)
	}
	for _, c := range []struct{ data, want string }{
		{"extends = 'nope'", `p.toml:2:11: extends: preset "nope" is not known: want one of ["agent" "default" "kernel" "program" "tool"], or a file: "./NAME.toml"`},
		{"extends = './nope'", `p.toml:2:11: extends: read "/p/nope": file does not exist`},
		{"extends = '$NOPE/x'", `p.toml:2:11: extends: expand "$NOPE/x": variable "NOPE" is not set`},
		{"extends = ''", `p.toml:2:11: extends: is an empty string`},
		{"extends = 'a.toml'", `/p/b.toml:2:11: extends: it extends itself: p.toml -> /p/a.toml -> /p/b.toml -> /p/a.toml`},
		{"extends = './p.toml'", `p.toml:2:11: extends: it extends itself: p.toml -> /p/p.toml`},
		{"extends = 'self.toml'", `/p/self.toml:2:11: extends: it extends itself: p.toml -> /p/self.toml -> /p/self.toml`},
		{"extends = '0.toml'", `/p/6.toml:2:11: extends: the chain is longer than 8: p.toml -> /p/0.toml -> /p/1.toml -> ` +
			`/p/2.toml -> /p/3.toml -> /p/4.toml -> /p/5.toml -> /p/6.toml -> /p/7.toml`},
		{"extends = 'old.toml'", `/p/old.toml:1:1: version: missing: a policy says version = 1`},
		{"extends = 'bad.toml'\nbad = 1", "p.toml:3:1: bad: unknown key\n" +
			`/p/bad.toml:3:1: files.raed: unknown key, did you mean "files.read"?`},
		{"extends = 'x.json'", `/p/x.json:2:1: raed: unknown key`},
		{
			"extends = 'ws.toml'\nworkspace.source = '/x'",
			`/p/ws.toml:4:1: workspace.size: only a workspace with source = "tmpfs" has a size`,
		},
		{
			"extends = 'port.toml'\nnetwork.ports = [80]",
			`p.toml:3:18: network.ports: port 80 is forwarded already, by /p/port.toml:3:10: network.ports`,
		},
	} {
		in := withFiles(input("p.toml", "version = 1\n"+c.data), files)
		files["/p/p.toml"] = string(in.Data)
		if got := problems(t, in); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.data, got, c.want)
		}
	}
	if got := problems(t, input("p", "version = 1\nextends = '/x'")); !strings.Contains(got, "cannot extend a file") {
		t.Errorf("got %s", got)
	}
}
