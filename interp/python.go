package interp

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
)

// python is one Python: a prefix with its library, and perhaps an environment on top of it.
type python struct {
	prefix string // with lib/pythonX.Y; empty if it was not found
	libs   []string
	env    string // the directory of the environment ("venv"); empty if there is none
	system bool   // the environment sees the site directories of its base too
}

// addPython shows a Python that no program of the policy can have changed.
func (f *finder) addPython(p program) error {
	py, cfg := f.environment(p.path)
	start := f.hops(p.path)
	if py.env != "" {
		f.showPrefix(py.env, p.From)
		start = []string{cfg}
	}
	py.prefix, py.libs = f.prefixOf(start, py)
	if py.prefix == "" {
		return fault.New(fault.PolicyInvalid, "name the program that the interpreter's installation has, or grant what it needs with files.read",
			"%s %q: no standard library (lib/pythonX.Y/os.py) is above %q", p.From, p.path, start[len(start)-1])
	}
	if believed := append([]string{py.prefix}, append(start, py.libs...)...); slices.ContainsFunc(believed, f.held) ||
		py.env != "" && f.held(path.Join(py.env, "pyvenv.cfg")) {
		return f.distrusted(p, py.prefix)
	}
	f.showPython(py, p.From)
	f.showHops(p.path, p.From, py.dirs()...)
	for _, dir := range f.ownSites(py) {
		f.sites[f.real(dir)] = true
		f.show(dir, p.From)
	}
	f.named = append(f.named, py)
	return nil
}

// distrusted is the error for an interpreter that a program of the policy can change.
func (f *finder) distrusted(p program, at string) *fault.Error {
	return fault.New(fault.PolicyInvalid, "name an interpreter outside of the writable grants, or make the grant read-only",
		"%s %q: %q lies where the policy lets programs write, so a program may have changed it", p.From, p.Name, at)
}

// environment returns the environment that a program is started in: pyvenv.cfg lies beside the program or above it. home is
// the directory of the base's program, as a path in it.
func (f *finder) environment(p string) (py *python, home string) {
	py = &python{}
	dir := path.Dir(p)
	for _, at := range []string{dir, path.Dir(dir)} {
		cfg := path.Join(at, "pyvenv.cfg")
		if !f.isFile(cfg) {
			continue
		}
		py.env = path.Dir(dir)
		for line := range strings.Lines(string(f.read(cfg))) {
			key, value, _ := strings.Cut(line, "=")
			value = strings.TrimSpace(value)
			switch strings.ToLower(strings.TrimSpace(key)) {
			case "home":
				home = path.Join(value, "python")
			case "include-system-site-packages":
				py.system = strings.EqualFold(value, "true")
			}
		}
		if path.IsAbs(home) {
			return py, path.Clean(home)
		}
		return py, p
	}
	return py, ""
}

// prefixOf looks for the standard library above the program, as Python does.
func (f *finder) prefixOf(hops []string, py *python) (prefix string, libs []string) {
	var versions []string // those of an environment
	if py.env != "" {
		for _, dir := range f.matching(path.Join(py.env, "lib"), f.re.anyPython) {
			versions = append(versions, path.Base(dir))
		}
	}
	for _, hop := range slices.Backward(hops) {
		for at := path.Dir(hop); ; at = path.Dir(at) {
			if libs := f.libsOf(at, append(versions, path.Base(f.programOf(hop)))); len(libs) > 0 {
				return at, libs
			}
			if at == "/" {
				break
			}
		}
	}
	return "", nil
}

// programOf is where the symlinks of a program end. A base is known only by its directory.
func (f *finder) programOf(p string) string {
	for _, name := range []string{p, p + "3", p + "2"} {
		if f.isFile(name) {
			hops := f.hops(name)
			return hops[len(hops)-1]
		}
	}
	return p
}

// libsOf lists the standard libraries in a prefix: those of the versions that are known, if there are such, else all.
func (f *finder) libsOf(prefix string, versions []string) []string {
	var libs []string
	for _, lib := range []string{"lib", "lib64"} {
		for _, dir := range f.matching(path.Join(prefix, lib), f.re.versioned) {
			if f.isFile(path.Join(dir, "os.py")) && f.endsIn(dir, prefix) {
				libs = append(libs, dir)
			}
		}
	}
	if exact := slices.DeleteFunc(slices.Clone(libs), func(dir string) bool { return !slices.Contains(versions, path.Base(dir)) }); len(exact) > 0 {
		return exact
	}
	return libs
}

// showPython shows a base: as a whole if its prefix has nothing else, else its programs, libraries and headers.
func (f *finder) showPython(py *python, from string) {
	if f.dedicated(py.prefix) {
		f.showPrefix(py.prefix, from)
		return
	}
	f.prefixes = append(f.prefixes, py.prefix)
	for _, p := range f.matching(path.Join(py.prefix, "bin"), f.re.inBin) {
		f.showHops(p, from, apart(py.prefix)...)
	}
	for _, lib := range py.libs {
		f.show(lib, from)
		f.showIn(path.Join(py.prefix, "include", path.Base(lib)), from, apart(py.prefix)...)
	}
	for _, lib := range []string{"lib", "lib64"} {
		for _, p := range f.matching(path.Join(py.prefix, lib), f.re.sharedLibs) {
			f.showHops(p, from, apart(py.prefix)...)
		}
	}
}

// ownSites lists the site directories that are on sys.path of a Python. The one of the user, in ~/.local, is not among them: a
// program has a home of its own. A symlink that leads to the site directory of another Python does not make that one its own.
func (f *finder) ownSites(py *python) []string {
	var list []string
	if py.env != "" {
		list = slices.DeleteFunc(f.sitesOf(py.env), func(dir string) bool { return !f.endsIn(dir, py.env) })
		if !py.system {
			return list
		}
	}
	for _, lib := range py.libs {
		for _, dir := range f.librarySites(lib, py.prefix) {
			if f.isDir(dir) && (f.endsIn(dir, apart(py.prefix)...) || system(py.prefix) && inSystem(f.real(dir))) {
				list = append(list, dir)
			}
		}
	}
	return list
}

// librarySites lists where a Python without an environment looks for site directories, those of Debian's included.
func (f *finder) librarySites(lib, prefix string) []string {
	version := path.Base(lib)
	dirs := []string{path.Join(lib, "site-packages"), path.Join(lib, "dist-packages"), path.Join(prefix, "local/lib", version, "dist-packages")}
	if strings.HasPrefix(version, "python3.") {
		dirs = append(dirs, path.Join(path.Dir(lib), "python3/dist-packages"))
	}
	if path.Dir(f.real(lib)) == "/usr/lib" {
		dirs = append(dirs, path.Join("/usr/local/lib", version, "dist-packages"))
	}
	return dirs
}

// dirs are the directories that belong to a Python alone.
func (py *python) dirs() []string {
	if py.env != "" {
		return append(apart(py.prefix), py.env)
	}
	return apart(py.prefix)
}

// apart is a prefix, or nothing if it is the system's.
func apart(prefix string) []string {
	if system(prefix) {
		return nil
	}
	return []string{prefix}
}

// sitesOf lists every site directory of a prefix.
func (f *finder) sitesOf(prefix string) []string {
	var list []string
	for _, lib := range []string{"lib", "lib64", "local/lib"} {
		for _, python := range f.matching(path.Join(prefix, lib), f.re.anyPython) {
			for _, name := range siteNames() {
				if dir := path.Join(python, name); f.isDir(dir) {
					list = append(list, dir)
				}
			}
		}
	}
	return list
}

func siteNames() []string { return []string{"site-packages", "dist-packages"} }

// addHeld adds an environment that lies where the policy lets programs write. What its files say shows nothing: the grant around
// shows the environment, and its base has to be shown without it.
func (f *finder) addHeld(p program) error {
	if p.lang != langPython {
		return f.distrusted(p, p.path)
	}
	py, cfg := f.environment(p.path)
	if py.env == "" || f.redirected(py.env) {
		return f.distrusted(p, p.path)
	}
	prefix, libs := f.prefixOf([]string{cfg}, py)
	base := f.programOf(cfg)
	named := slices.ContainsFunc(f.named, func(o *python) bool { return o.env == "" && f.real(o.prefix) == f.real(prefix) })
	kind := f.Files.Base.Kind
	shown := (kind == "" || kind == rootfs.BaseSystem || kind == rootfs.BaseHost) && inSystem(f.real(prefix)) && inSystem(f.real(base))
	if prefix == "" || len(libs) == 0 || !named && (py.system || !shown) {
		return fault.New(fault.PolicyInvalid, fmt.Sprintf("name the base too: files.interpreters = [%q, %q]", base, p.Name),
			"%s %q is an environment where the policy lets programs write: what it says of its base %q is not believed", p.From, p.Name, base)
	}
	for _, dir := range f.sitesOf(py.env) {
		if !f.redirected(dir) { // such a symlink could lead to the site directory of another interpreter
			f.sites[f.real(dir)] = true
		}
	}
	return nil
}
