package integration

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// importable prints what a Python can import: the top-level modules of each directory, and where a namespace package lies.
const importable = `
import json, os, pkgutil, site, sys, importlib.util
out = {}
def where(p): # inside, the last symlink on the way may be a mount
    return os.path.basename(p) + " " + str(os.stat(p).st_ino)
for entry in %s:
    for m in pkgutil.iter_modules([entry]):
        out.setdefault(m.name, where(entry))
for name in ("spaced.one", "spaced.two"):
    try: spec = importlib.util.find_spec(name)
    except ImportError: spec = None
    if spec and %s: out[name] = where(spec.origin)
print(json.dumps(out))
`

// editableFinder is what setuptools writes for an editable distribution that has a directory for each module, in short.
const editableFinder = `
import os, sys
from importlib.util import spec_from_file_location
MAPPING = {%s}
class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        file = os.path.join(MAPPING.get(name, "/none"), "__init__.py")
        return spec_from_file_location(name, file) if os.path.exists(file) else None
def install():
    sys.meta_path.append(Finder)
`

// inSandbox takes all of sys.path.
const inSandbox = "sys.path"

// byTheRule takes the standard library and the site directories, and leaves out what .pth files add and the user's directory.
const byTheRule = "[p for p in sys.path if p in site.getsitepackages() or p.startswith(os.path.dirname(os.__file__)) and '-packages' not in p]"

// pythons is a made-up home with interpreters and environments.
type pythons struct {
	*box
	home, version string
	sites         map[string]string // by name
}

func (b *box) pythons() *pythons {
	b.t.Helper()
	const debian = "/usr/bin/python3"
	_, err := os.Stat(debian)
	need(b.t, "python3", err == nil && exec.Command(debian, "-c", "import venv, ensurepip").Run() == nil)
	p := &pythons{box: b, home: b.mkdir("home"), sites: map[string]string{}}
	p.version = strings.TrimSpace(p.do(debian, "-c", "import sys; print('python%d.%d' % sys.version_info[:2])"))

	// A Python in a home directory, as pyenv and uv have it.
	own := b.mkdir("home/.pyenv/versions/3.0.1/bin")
	p.do("cp", "-L", debian, filepath.Join(own, p.version))
	p.must(os.Symlink(p.version, filepath.Join(own, "python3")))
	p.must(os.Symlink("python3", filepath.Join(own, "python")))
	lib := filepath.Join(p.home, ".pyenv/versions/3.0.1/lib")
	p.must(os.Mkdir(lib, 0o755))
	p.do("sh", "-c", `cd /usr/lib && tar -c --exclude=__pycache__ --exclude=test --exclude=config-3* "$1" | tar -xC "$2"`, "sh", p.version, lib)
	p.must(os.Symlink("3.0.1", filepath.Join(p.home, ".pyenv/versions/3.0")))
	p.add("own", filepath.Join(lib, p.version, "dist-packages"), "inown")

	for name, base := range map[string]string{"debvenv": debian, "ownvenv": filepath.Join(p.home, ".pyenv/versions/3.0/bin/python3")} {
		dir := filepath.Join(p.home, "work", name)
		p.do(base, "-m", "venv", "--without-pip", dir)
		p.add(name, filepath.Join(dir, "lib", p.version, "site-packages"), "in"+name)
		dir += "all"
		p.do(base, "-m", "venv", "--without-pip", "--system-site-packages", dir)
		p.add(name+"all", filepath.Join(dir, "lib", p.version, "site-packages"), "in"+name+"all")
	}
	for name, site := range p.sites { // editable checkouts, in both forms, and half of a namespace package
		b.file("home/src/"+name+"/flat"+name+".py", "")
		b.file("home/src/"+name+"/.secret", "secret")
		b.file("home/src/"+name+"-mapped/mapped"+name+"/__init__.py", "")
		p.write(site, "__editable__.flat_"+name+"-1.0.pth", filepath.Join(p.home, "src", name)+"\n")
		p.write(site, "flat_"+name+"-1.0.dist-info/RECORD", "__editable__.flat_"+name+"-1.0.pth,,\nflat_"+name+"-1.0.dist-info/RECORD,,\n")
		p.write(site, "__editable__.mapped_"+name+"-1.0.pth", "import __editable___mapped_"+name+"_finder; __editable___mapped_"+name+"_finder.install()\n")
		p.write(site, "__editable___mapped_"+name+"_finder.py",
			strings.Replace(editableFinder, "%s", "'mapped"+name+"': '"+filepath.Join(p.home, "src", name+"-mapped", "mapped"+name)+"'", 1))
		p.write(site, "mapped_"+name+"-1.0.dist-info/RECORD", "__editable__.mapped_"+name+"-1.0.pth,,\n")
		half := map[bool]string{true: "one", false: "two"}[strings.HasSuffix(name, "venv")]
		p.write(site, "spaced/"+half+".py", "")
	}
	return p
}

func (p *pythons) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// do runs a program outside.
func (p *pythons) do(args ...string) string {
	p.t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(slices.Clone(p.env), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("%q: %v", args, err)
	}
	return string(out)
}

func (p *pythons) write(dir, name, content string) {
	p.t.Helper()
	file := filepath.Join(dir, name)
	p.must(os.MkdirAll(filepath.Dir(file), 0o755))
	p.must(os.WriteFile(file, []byte(content), 0o644))
}

// add puts a module into a site directory.
func (p *pythons) add(name, site, module string) {
	p.write(site, module+".py", "")
	p.sites[name] = site
}

// program is the program of an interpreter by its name here.
func (p *pythons) program(name string) string {
	switch name {
	case "debian":
		return "/usr/bin/python3"
	case "own":
		return filepath.Join(p.home, ".pyenv/versions/3.0/bin/python3")
	}
	return filepath.Join(p.home, "work", name, "bin/python")
}

func (p *pythons) parse(text string) map[string]string {
	p.t.Helper()
	out := map[string]string{}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		p.t.Fatalf("%v: %q", err, text)
	}
	return out
}

// oracle lists outside what the rule says.
func (p *pythons) oracle(program string) map[string]string {
	text := strings.Replace(importable, "%s", byTheRule, 1)
	text = strings.Replace(text, "%s", "os.path.dirname(os.path.dirname(spec.origin)) in "+byTheRule, 1)
	return p.parse(p.do(program, "-I", "-c", text))
}

func (p *pythons) inside(policy, program string) map[string]string {
	text := strings.Replace(strings.Replace(importable, "%s", inSandbox, 1), "%s", "True", 1)
	return p.parse(p.run("run", "--policy", policy, "--", program, "-I", "-c", text).exits(0).stdout)
}

// TestInterpretersMatrix: what a program can import is what the rule says, for each way to install a Python and to name it, with
// other interpreters and environments beside it in a grant.
func TestInterpretersMatrix(t *testing.T) {
	flavours(t, func(b *box) {
		p := b.pythons()
		for _, name := range []string{"debian", "own", "debvenv", "debvenvall", "ownvenv", "ownvenvall"} {
			program := p.program(name)
			want := p.oracle(program)
			if len(want) < 100 || want["in"+name] == "" && name != "debian" {
				t.Fatalf("%s: the oracle finds %d modules", name, len(want))
			}
			for _, named := range []string{program, filepath.Dir(filepath.Dir(program))} {
				policy := b.files("", object{"interpreters": []string{named, "node"}, "read": []string{filepath.Join(p.home, "work")}})
				got := p.inside(policy, program)
				if !maps.Equal(got, want) {
					b.t.Errorf("%s as %s: %s", name, named, differ(got, want))
				}
				p.othersAreEmpty(policy, name)
			}
		}
	})
}

// differ lists what two answers have not in common.
func differ(got, want map[string]string) string {
	var list []string
	for _, side := range []struct {
		mark string
		a, b map[string]string
	}{{"surplus ", got, want}, {"missing ", want, got}} {
		for k, v := range side.a {
			if side.b[k] != v {
				list = append(list, side.mark+k+" in "+v)
			}
		}
	}
	slices.Sort(list)
	return strings.Join(list[:min(len(list), 20)], "\n")
}

// othersAreEmpty looks at the site directories of the interpreters that are not named, by paths and through /proc.
func (p *pythons) othersAreEmpty(policy, name string) {
	p.t.Helper()
	script := `for d; do for d in "$d" /proc/self/root"$d"; do test -e "$d" || continue; ls -A "$d"; touch "$d/x" 2>/dev/null && echo "wrote $d"; done; done; ` +
		`ls "$HOME/../src" "` + p.home + `/src" 2>/dev/null; node -e 'console.log(process.version)' >/dev/null; true`
	var others []string
	for other, site := range p.sites {
		base := strings.TrimSuffix(name, "venvall") == strings.TrimSuffix(other, "venv") && strings.HasSuffix(name, "all")
		if other != name && !base {
			others = append(others, site)
		}
	}
	if !strings.HasPrefix(name, "deb") || name == "debvenv" {
		others = append(others, "/usr/lib/python3/dist-packages")
	}
	slices.Sort(others)
	if a := p.sh(policy, script, others...); a.stdout != "" || a.status != 0 {
		p.t.Errorf("%s: others: %v", name, a)
	}
}

// TestInterpretersControl: without files.interpreters the other site directories of a grant are not empty, so that the matrix shows
// something; and an interpreter that is not shown is an error that names the line.
func TestInterpretersControl(t *testing.T) {
	flavours(t, func(b *box) {
		p := b.pythons()
		plain := b.files("", object{"read": []string{filepath.Join(p.home, "work")}})
		out := b.sh(plain, `ls "$1"`, p.sites["debvenv"]).exits(0).stdout
		if !strings.Contains(out, "indebvenv.py") {
			b.t.Errorf("control: %q", out)
		}
		venv := filepath.Join(p.home, "work/ownvenv")
		b.run("run", "--policy", plain, venv+"/bin/python", "-c", "0").exits(127).complains("program_not_found", `files.interpreters = ["`+venv+`"]`)
		b.run("run", "--policy", b.files("", object{}), venv+"/bin/python", "-c", "0").exits(127).complains("program_not_found", "files.interpreters = [")
	})
}

// TestInterpretersLead: the directory of an interpreter leads PATH, so that scripts run by it, relative to the policy's directory.
func TestInterpretersLead(t *testing.T) {
	flavours(t, func(b *box) {
		p := b.pythons()
		script := b.file("home/work/script.py", "#!/usr/bin/env python3\nimport sys, inownvenv\nprint(sys.prefix)\n")
		p.must(os.Chmod(script, 0o755))
		policy := b.file("home/work/task.json", `{"version": 1, "workdir": "`+filepath.Join(p.home, "work")+`",
			"files": {"interpreters": ["./ownvenv"], "read": ["."]}}`)
		for _, program := range [][]string{{"./script.py"}, {"python", "script.py"}, {"python3", "script.py"}, {"./ownvenv/bin/python", "script.py"}} {
			a := b.run(append([]string{"run", "--policy", policy, "--"}, program...)...).exits(0)
			same(b.t, strings.Join(program, " "), filepath.Join(p.home, "work/ownvenv")+"\n", a.stdout)
		}
		// pyenv's shims stand for the version that is chosen; "python3" is looked up in the caller's PATH.
		b.file("home/.pyenv/shims/python3", "#!/bin/false\n")
		p.must(os.Chmod(filepath.Join(p.home, ".pyenv/shims/python3"), 0o755))
		b.file("home/.pyenv/version", "3.0.1\n")
		named := b.files("", object{"interpreters": []string{"python3"}})
		env := []string{"PATH=" + filepath.Join(p.home, ".pyenv/shims") + ":" + systemPath}
		a := b.call(call{env: env}, "run", "--policy", named, "python3", "-c", "import sys; print(sys.prefix)").exits(0)
		same(b.t, "pyenv", filepath.Join(p.home, ".pyenv/versions/3.0.1")+"\n", a.stdout)
	})
}

// TestInterpretersPackages: packages shows what .pth files and PYTHONPATH add, of the named distributions only.
func TestInterpretersPackages(t *testing.T) {
	flavours(t, func(b *box) {
		p := b.pythons()
		b.file("home/lib/onpath.py", "")
		b.file("home/lib/other.py", "")
		const try = `
import importlib.util
for m in ("flatownvenv", "mappedownvenv", "onpath", "other"):
    try: __import__(m); print(m)
    except ModuleNotFoundError: pass
`
		for _, c := range []struct {
			packages []string
			want     string
		}{
			{[]string{}, ""},
			{[]string{"flat.ownvenv"}, "flatownvenv\n"},
			{[]string{"Mapped-ownvenv"}, "mappedownvenv\n"},
			{[]string{"flat_ownvenv", "mapped_ownvenv", "onpath"}, "flatownvenv\nmappedownvenv\nonpath\n"},
		} {
			policy := b.files("", object{"interpreters": []string{p.program("ownvenv")}, "packages": c.packages})
			a := b.call(call{env: []string{"PYTHONPATH=" + filepath.Join(p.home, "lib")}}, "run", "--policy", policy, "python", "-c", try).exits(0)
			same(b.t, strings.Join(c.packages, ","), c.want, a.stdout)
		}
		none := b.files("", object{"interpreters": []string{p.program("ownvenv")}, "packages": []string{"nowhere"}})
		b.run("run", "--policy", none, "true").exits(125).says("grant_missing", "nowhere")
	})
}

// TestInterpretersOfPrograms: an environment, or a program in PATH, where the policy lets programs write may be a program's work.
// It shows nothing that the grants do not show, and is never run outside.
func TestInterpretersOfPrograms(t *testing.T) {
	flavours(t, func(b *box) {
		p := b.pythons()
		work := filepath.Join(p.home, "work")
		// The target looks like an installation, as anything that a program wants to see may.
		b.file("home/private-1.0/secret", "secret")
		b.file("home/private-1.0/lib/python3.11/os.py", "")
		b.file("home/private-1.0/bin/python3", "#!/bin/sh\ntouch "+p.home+"/ran\n")
		p.must(os.Chmod(filepath.Join(p.home, "private-1.0/bin/python3"), 0o755))
		policy := func(interpreters ...string) string {
			return b.files("", object{"interpreters": interpreters, "write": []string{work}})
		}
		evil := filepath.Join(work, "evil")
		p.do("cp", "-a", filepath.Join(work, "debvenv"), evil)
		attack := func(what, cfg, want string, interpreters ...string) {
			b.t.Helper()
			p.write(evil, "pyvenv.cfg", cfg)
			a := b.sh(policy(interpreters...), `cat "$1"/private-1.0/secret 2>/dev/null; ls /usr/lib/python3/dist-packages "$1"/work/ownvenv/lib/*/site-packages | grep -v :`, p.home)
			if strings.TrimSpace(a.stdout) != "" || !strings.Contains(a.stderr, want) {
				b.t.Errorf("%s: %v", what, a)
			}
			if _, err := os.Stat(filepath.Join(p.home, "ran")); err == nil {
				b.t.Fatalf("%s: it was run outside", what)
			}
		}
		attack("control", "home = /usr/bin\n", "", evil)
		const refused = "where the policy lets programs write"
		attack("other base", "home = "+p.home+"/private-1.0/bin\n", refused, evil)
		attack("system sites", "home = /usr/bin\ninclude-system-site-packages = true\n", refused, evil)
		attack("own program", "", refused, filepath.Join(evil, "bin/python3.11"))
		// A site directory that leads to the ones of others.
		site := filepath.Join(evil, "lib", p.version, "site-packages")
		p.must(os.Rename(site, site+"-old"))
		for _, to := range []string{"/usr/lib/python3/dist-packages", p.sites["ownvenv"]} {
			p.must(os.Symlink(to, site))
			attack("site link to "+to, "home = /usr/bin\n", "", evil)
			p.must(os.Remove(site))
		}
		// The program itself leads elsewhere.
		link := filepath.Join(evil, "bin/python3")
		p.must(os.Remove(link))
		p.must(os.Symlink(filepath.Join(p.home, "private-1.0/bin/python3"), link))
		attack("program link", "home = /usr/bin\n", "", evil)
		p.must(os.Remove(filepath.Join(evil, "pyvenv.cfg")))
		a := b.call(call{env: []string{"PATH=" + evil + "/bin:" + systemPath}}, "run", "--policy", policy("python3"), "true").exits(125)
		a.says("policy_invalid", refused)
	})
}

// TestInterpretersBelow: what the policy grants in another interpreter's site directory is shown there, alone; a deny wins.
func TestInterpretersBelow(t *testing.T) {
	flavours(t, func(b *box) {
		p := b.pythons()
		site := p.sites["ownvenv"]
		for grant, want := range map[string]string{"read": "inownvenv.py\n", "write": "inownvenv.py\n"} {
			files := object{"interpreters": []string{p.program("debian")}, "read": []string{filepath.Join(p.home, "work")}}
			files[grant] = append([]string{filepath.Join(site, "inownvenv.py")}, filepath.Join(p.home, "work"))
			const script = `ls -A "$1"; touch "$1/new" "$1" 2>/dev/null && echo changed; mv "$1" "$1-2" 2>/dev/null && echo moved; true`
			same(b.t, grant, want, b.sh(b.files("", files), script, site).exits(0).stdout)
		}
		denied := b.files("", object{
			"interpreters": []string{p.program("debian")}, "read": []string{filepath.Join(p.home, "work")}, "deny": []string{site},
		})
		same(b.t, "deny", "", b.sh(denied, `ls -A "$1" 2>/dev/null; true`, site).exits(0).stdout)
		elsewhere := b.policy(object{
			"files": object{"interpreters": []string{p.program("debian")}},
			"bind":  []object{{"source": filepath.Dir(site), "target": "/x", "writable": true}},
		})
		same(b.t, "bind", "site-packages\n", b.sh(elsewhere, `ls -A /x; ls -A /x/site-packages; rmdir /x/site-packages 2>/dev/null; ls -A /x/site-packages`).exits(0).stdout)
	})
}
