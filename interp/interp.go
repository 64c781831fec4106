// Package interp finds out what an installed interpreter of Python, Node.js or Java consists of, so that a policy can show it: its
// program, prefix, standard library and site directories.
//
// It runs nothing and imports nothing. An interpreter may lie where a program could have replaced it, and to run it outside would let
// that program out. So it reads what the interpreters themselves read when they start: the symlinks of the program,
// pyvenv.cfg, and the place of the standard library above the program. It believes no file that a program of the policy may have
// written: such an environment shows nothing beyond what the policy's grants show.
//
// It reads the host through hostfs.Tree, and imports of ours rootfs, hostfs, pathname and fault.
package interp

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// Item is an interpreter or a package that the policy names.
type Item struct {
	Name string // a name, or an absolute path
	From string // the place in the policy, ready to print
}

// Request is all that Find looks at.
type Request struct {
	Interpreters, Packages []Item
	Files                  rootfs.Policy     // the policy's grants
	Env                    map[string]string // the caller's variables: PATH, HOME, PYTHONPATH, PYENV_ROOT, PYENV_VERSION
	Tree                   hostfs.Tree
}

// Found is what the policy has to show and to hide.
type Found struct {
	Read       []rootfs.Grant // to be shown read-only
	Empty      []rootfs.Grant // directories of the host that are shown empty: the site directories of other interpreters
	Path       []string       // directories that lead PATH
	Native     []string       // directories of Pythons' own native extensions: standard libraries and site directories, by each of their names
	PythonPath []string       // directories of PYTHONPATH that have a package which the policy names
	Partial    []string       // directories of the host in which not every such directory is hidden, because there are too many, or too many files
}

// finder is the state of one Find.
type finder struct {
	Request
	host
	re       patterns
	out      Found
	sites    map[string]bool // real paths of the named interpreters' own site directories
	prefixes []string        // where interpreters are shown from
	trees    []string        // what packages adds
	named    []*python
}

// Find looks the interpreters and packages up. The error is a *fault.Error, or of reading.
func Find(r Request) (*Found, error) {
	if len(r.Interpreters) == 0 {
		if len(r.Packages) > 0 {
			return nil, fault.New(fault.PolicyInvalid, `name one: files.interpreters = ["python3"]`,
				"%s %q: no interpreter is named that could have it", r.Packages[0].From, r.Packages[0].Name)
		}
		return &Found{}, nil
	}
	f := &finder{Request: r, host: host{tree: r.Tree, made: rootfs.MadeByPrograms(r.Tree, r.Files)}, re: newPatterns(), sites: map[string]bool{}}
	if err := f.addAll(); err != nil {
		return nil, err
	}
	for _, it := range r.Packages {
		if err := f.addPackage(it); err != nil {
			return nil, err
		}
	}
	f.hideOthers()
	f.out.Path = unique(f.out.Path)
	f.out.PythonPath = unique(f.out.PythonPath)
	return &f.out, nil
}

// addAll adds the interpreters. What is trusted comes first: an environment that a program may have written needs its base named.
func (f *finder) addAll() error {
	var held []program
	for _, it := range f.Interpreters {
		programs, err := f.programs(it)
		if err != nil {
			return err
		}
		for _, p := range programs {
			f.out.Path = append(f.out.Path, path.Dir(p.path))
			if f.held(p.path) {
				held = append(held, p)
			} else if err := f.add(p); err != nil {
				return err
			}
		}
	}
	for _, p := range held {
		if err := f.addHeld(p); err != nil {
			return err
		}
	}
	return nil
}

// unique keeps the first of equal texts.
func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// language is what a program interprets.
type language string

const (
	langPython language = "Python"
	langNode   language = "Node.js"
	langJava   language = "Java"
)

// program is the program of an interpreter.
type program struct {
	Item
	path string // absolute, as the policy or PATH names it
	lang language
}

// programs finds the programs that an item of the policy names: by path, by the directory of an installation, or by name in PATH.
func (f *finder) programs(it Item) ([]program, error) {
	at := it.Name
	if !strings.Contains(it.Name, "/") {
		if at = f.inPath(it.Name); at == "" {
			return nil, fault.New(fault.GrantMissing, "install it, or name its path", "%s %q is in no directory of PATH", it.From, it.Name)
		}
	}
	at = path.Clean(at)
	if shim := f.shim(at); shim != "" {
		at = shim
	}
	info, err := f.stat(at)
	if err != nil {
		return nil, fault.New(fault.GrantMissing, "name an interpreter, or the directory of its installation", "%s %q does not exist or cannot be read", it.From, at)
	}
	if !info.Mode.IsDir() {
		lang := f.languageOf(at)
		if lang == "" {
			return nil, fault.New(fault.PolicyInvalid, fmt.Sprintf("grant it: files.read = [%q]", at), "%s %q is no interpreter of Python, Node.js or Java", it.From, at)
		}
		return []program{{it, at, lang}}, nil
	}
	return f.installedIn(it, at)
}

// installedIn finds the programs in the directory of an installation or environment: one of each language.
func (f *finder) installedIn(it Item, dir string) ([]program, error) {
	var list []program
	for _, kind := range [][]string{{"python3", "python", "python2"}, {"node"}, {"java"}} {
		for _, name := range kind {
			if p := path.Join(dir, "bin", name); f.isFile(p) {
				list = append(list, program{it, p, f.languageOf(p)})
				break
			}
		}
	}
	if len(list) == 0 {
		return nil, fault.New(fault.PolicyInvalid, "name the interpreter's program itself", "%s %q has no bin/python3, bin/python, bin/node or bin/java", it.From, dir)
	}
	return list, nil
}

// languageOf goes by the names of a program and of the files that its symlinks lead to.
func (f *finder) languageOf(p string) language {
	for _, hop := range f.hops(p) {
		name := path.Base(hop)
		switch {
		case strings.HasPrefix(name, "python"), strings.HasPrefix(name, "pypy"):
			return langPython
		case name == "node", name == "nodejs":
			return langNode
		case name == "java":
			return langJava
		}
	}
	return ""
}

// inPath looks a name up as a shell does. Relative directories of PATH are passed over, because a program may have written there.
func (f *finder) inPath(name string) string {
	for dir := range strings.SplitSeq(f.Env["PATH"], ":") {
		if !path.IsAbs(dir) {
			continue
		}
		p := path.Join(dir, name)
		if info, err := f.stat(p); err == nil && info.Mode.IsRegular() && info.Mode.Perm()&0o111 != 0 {
			return p
		}
	}
	return ""
}

// shim is the program that a shim of pyenv stands for: a script in shims, which starts the program of the chosen version. It
// is the version of PYENV_VERSION, else the global one. Files .python-version are not looked at, because programs may have written
// them.
func (f *finder) shim(p string) string {
	root := path.Dir(path.Dir(p))
	if path.Base(path.Dir(p)) != "shims" || !f.isDir(path.Join(root, "versions")) {
		return ""
	}
	chosen := f.Env["PYENV_VERSION"]
	if chosen == "" {
		if file := path.Join(root, "version"); !f.held(file) {
			chosen = string(f.read(file))
		}
	}
	for _, version := range strings.FieldsFunc(chosen, func(r rune) bool { return strings.ContainsRune(": \t\r\n", r) }) {
		at := path.Join(root, "versions", version, "bin", path.Base(p))
		if info, err := f.stat(at); err == nil && info.Mode.IsRegular() && !strings.Contains(version, "/") {
			return at
		}
	}
	for dir := range strings.SplitSeq(f.Env["PATH"], ":") { // version "system": the next in PATH
		at := path.Join(dir, path.Base(p))
		if info, err := f.stat(at); path.IsAbs(dir) && path.Base(dir) != "shims" && err == nil && info.Mode.IsRegular() {
			return at
		}
	}
	return ""
}

// add shows a program and its installation.
func (f *finder) add(p program) error {
	if p.lang == langPython {
		return f.addPython(p)
	}
	return f.addOther(p)
}

// showHops shows a program under each name that its symlinks have for it, if these end in one of some directories or in the system's.
func (f *finder) showHops(p, from string, dirs ...string) {
	for _, hop := range f.hops(p) {
		f.showIn(hop, from, dirs...)
	}
}

// showIn shows a path that ends in one of some directories, or in the system's. A symlink that leads anywhere else belongs to no
// interpreter: the installation may be the work of a program that had another policy.
func (f *finder) showIn(p, from string, dirs ...string) {
	if f.endsIn(p, dirs...) || inSystem(f.real(p)) {
		f.show(p, from)
	}
}

// endsIn reports whether the symlinks of a path lead into one of some directories.
func (f *finder) endsIn(p string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return within(f.real(p), f.real(dir)) })
}

// show grants a path unless the base shows it anyway.
func (f *finder) show(p, from string) {
	base := f.Files.Base.Kind
	real := f.real(p)
	if (base == "" || base == rootfs.BaseSystem || base == rootfs.BaseHost) && inSystem(p) && inSystem(real) {
		return
	}
	if _, err := f.tree.Lstat(real); err == nil {
		f.out.Read = append(f.out.Read, rootfs.Grant{Path: p, From: from})
	}
}

// inSystem reports whether the bases "system" and "host" show a path.
func inSystem(p string) bool {
	return slices.ContainsFunc([]string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}, func(dir string) bool {
		return within(p, dir)
	})
}

// addOther shows an installation of Node.js or Java: the directory that has bin. One of the system is shown by the base.
func (f *finder) addOther(p program) error {
	hops := f.hops(p.path)
	last := hops[len(hops)-1]
	if name := path.Base(last); name != "node" && name != "nodejs" && name != "java" {
		return fault.New(fault.PolicyInvalid, "name the program that the installation has",
			"%s %q leads to %q, which is not the program of an installation", p.From, p.path, last)
	}
	prefix := path.Dir(path.Dir(last))
	installed := path.Base(path.Dir(last)) == "bin" && !system(prefix)
	switch {
	case installed && f.dedicated(prefix):
		f.showPrefix(prefix, p.From)
	case installed:
		f.showIn(path.Join(prefix, "lib/node_modules"), p.From, prefix)
	}
	f.showHops(p.path, p.From, apart(prefix)...)
	return nil
}
