package interp

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// Modules is what is found of Python modules that are to be hidden.
type Modules struct {
	Gone    []rootfs.Grant // paths of the host, with every symlink in their directories resolved
	Partial []string       // directories of the host that were not searched to the end
	Builtin []Item         // those that an interpreter has in itself, where no file can be hidden
}

// FindModules looks for modules, by their dotted names, in all directories that a policy shows and from which an interpreter imports: the
// standard libraries and site directories, what .pth files add to these, and the top of each grant. It reads directories and
// imports nothing.
func FindModules(tree hostfs.Tree, files rootfs.Policy, names []Item) *Modules {
	f := &finder{Request: Request{Files: files, Tree: tree}, host: host{tree: tree, made: rootfs.MadeByPrograms(tree, files)}, re: newPatterns()}
	s := &moduleSearch{finder: f, names: names, gone: map[string]string{}, lists: map[string][]string{}}
	s.addDirs()
	for _, dir := range unique(s.dirs) {
		s.in(dir)
	}
	s.grantedAlone()
	for p, from := range s.gone {
		s.out.Gone = append(s.out.Gone, rootfs.Grant{Path: p, From: from})
	}
	slices.SortFunc(s.out.Gone, func(a, b rootfs.Grant) int { return compare(a.Path, b.Path) })
	for _, it := range names {
		if slices.Contains(builtins(), it.Name) {
			s.out.Builtin = append(s.out.Builtin, it)
		}
	}
	s.out.Partial = unique(f.out.Partial)
	return &s.out
}

// moduleSearch is the state of one FindModules.
type moduleSearch struct {
	*finder
	names []Item
	dirs  []string // real paths from which modules are imported
	lists map[string][]string
	gone  map[string]string
	made  int // of gone, those that a program may have made
	out   Modules
}

// list remembers what is in a directory, for the next name.
func (s *moduleSearch) list(dir string) []string {
	names, ok := s.lists[dir]
	if !ok {
		names = s.finder.list(dir)
		s.lists[dir] = names
	}
	return names
}

// addDirs finds the directories.
func (s *moduleSearch) addDirs() {
	switch s.Files.Base.Kind {
	case "", rootfs.BaseSystem:
		s.addBase("/")
	case rootfs.BaseHost:
		s.addBase("/")
		s.searchBelow("/opt")
		s.searchBelow("/srv")
	case rootfs.BaseRootfs:
		s.addBase(s.Files.Base.Dir)
		s.searchBelow(path.Join(s.Files.Base.Dir, "opt"))
	}
	for _, source := range s.sources() {
		s.addDir(source)
		s.searchBelow(source)
	}
	for _, dir := range slices.Clone(s.dirs) {
		s.addPaths(dir)
	}
}

func (s *moduleSearch) addDir(dir string) {
	if dir = s.real(dir); s.isDir(dir) {
		s.dirs = append(s.dirs, dir)
	}
}

// addBase adds those of the system's interpreters below a root.
func (s *moduleSearch) addBase(root string) {
	for _, prefix := range []string{"usr", "usr/local"} {
		for _, lib := range []string{"lib", "lib64", "local/lib"} {
			for _, python := range s.matching(path.Join(root, prefix, lib), s.re.anyPython) {
				for _, dir := range append(siteNames(), ".", dynload) {
					s.addDir(path.Join(python, dir))
				}
			}
		}
	}
}

// dynload is the directory of a standard library that has its extension modules.
const dynload = "lib-dynload"

// searchBelow adds those below a directory.
func (s *moduleSearch) searchBelow(top string) {
	s.walk(top, func(dir string) bool {
		switch {
		case s.isSite(dir):
			s.dirs = append(s.dirs, dir)
			return false
		case s.re.anyPython.MatchString(path.Base(dir)):
			s.dirs = append(s.dirs, dir)
			s.addDir(path.Join(dir, dynload))
		}
		return true
	})
}

// addPaths adds what the .pth files in a site directory add to sys.path, and the eggs in it that are directories.
func (s *moduleSearch) addPaths(site string) {
	if !slices.Contains(siteNames(), path.Base(site)) {
		return
	}
	for _, name := range s.list(site) {
		switch path.Ext(name) {
		case ".egg":
			s.addDir(path.Join(site, name))
		case ".pth", ".egg-link":
			s.addPathsOf(site, path.Join(site, name))
		}
	}
}

// addPathsOf adds what one file adds, unless a program may have written it: it could have any number of lines.
func (s *moduleSearch) addPathsOf(site, file string) {
	if s.held(file) {
		return
	}
	for line := range strings.Lines(string(s.read(file))) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "import") {
			s.addDir(inDir(site, line))
		}
	}
	for _, p := range s.added(site, file) { // what a finder of an editable distribution maps
		s.addDir(path.Dir(p))
	}
}

func inDir(dir, p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(dir, p)
}

// in looks for all names in one directory.
func (s *moduleSearch) in(dir string) {
	for _, it := range s.names {
		parts := strings.Split(it.Name, ".")
		at, last := path.Join(append([]string{dir}, parts[:len(parts)-1]...)...), parts[len(parts)-1]
		if real := s.real(at); s.isDir(real) {
			s.module(real, last, it.From)
		}
	}
	s.metadata(dir)
}

// module hides what one directory has of a module: a package, a file of any kind that is imported, and cached byte code.
func (s *moduleSearch) module(dir, name, from string) {
	for _, entry := range s.list(dir) {
		p := path.Join(dir, entry)
		if entry == name && s.isDir(p) || isModule(entry, name) {
			s.hide(p, from)
		}
	}
	cache := path.Join(dir, "__pycache__")
	if info, err := s.tree.Lstat(cache); err != nil || !info.Mode.IsDir() {
		return
	}
	for _, entry := range s.list(cache) {
		if isModule(entry, name) {
			s.hide(path.Join(cache, entry), from)
		}
	}
}

// isModule reports whether a file of this name belongs to a module: foo.py, foo.so, foo.cpython-311-x86_64-linux-gnu.so, foo.cpython-311.pyc.
func isModule(file, name string) bool {
	rest, ok := strings.CutPrefix(file, name+".")
	return ok && (slices.Contains([]string{"py", "pyc", "pyo", "pyi", "pyw", "so"}, rest) || strings.HasSuffix(rest, ".so") || strings.Contains(rest+".", ".pyc."))
}

// hide hides a path, and where it leads if it is a symlink, unless a program may have made that.
func (s *moduleSearch) hide(p, from string) {
	s.add(p, from)
	real := s.real(p)
	if real == p || s.redirected(p) {
		return
	}
	info, err := s.tree.Lstat(real)
	if err != nil || slices.ContainsFunc(s.dirs, func(dir string) bool { return within(dir, real) }) {
		return // others are imported from below it
	}
	if info.Mode.IsRegular() || info.Mode.IsDir() && (path.Base(real) == path.Base(p) || s.isFile(path.Join(real, "__init__.py"))) {
		s.add(real, from)
	}
}

// add hides a path. A program could make any number of modules, and each takes a mount.
func (s *moduleSearch) add(p, from string) {
	if _, ok := s.gone[p]; !ok && s.held(p) {
		if s.made++; s.made == mostEmpty+1 {
			s.finder.out.Partial = append(s.finder.out.Partial, path.Dir(p))
		}
		if s.made > mostEmpty {
			return
		}
	}
	if old, ok := s.gone[p]; !ok || from < old {
		s.gone[p] = from
	}
}

// metadata hides what a directory has about distributions that provide nothing but hidden modules, or have the name of one.
func (s *moduleSearch) metadata(dir string) {
	for _, entry := range s.list(dir) {
		m := s.re.distribution.FindStringSubmatch(entry)
		if m == nil {
			continue
		}
		p := path.Join(dir, entry)
		top := s.topLevel(p)
		if from := s.hiddenBy(m[1], top); from != "" {
			s.hide(p, from)
		}
	}
}

// hiddenBy is the rule that hides a distribution's metadata; empty: none does.
func (s *moduleSearch) hiddenBy(distribution string, top []string) string {
	from, all := "", len(top) > 0
	for _, module := range top {
		i := slices.IndexFunc(s.names, func(it Item) bool { return it.Name == module })
		if i < 0 {
			all = false
			break
		}
		from = s.names[i].From
	}
	if all {
		return from
	}
	for _, it := range s.names {
		if s.normal(it.Name) == s.normal(distribution) {
			return it.From
		}
	}
	return ""
}

// topLevel lists the modules that a distribution says it provides.
func (s *moduleSearch) topLevel(meta string) []string {
	if !s.isDir(meta) {
		return nil
	}
	if names := strings.Fields(string(s.read(path.Join(meta, "top_level.txt")))); len(names) > 0 {
		return names
	}
	var names []string
	for line := range strings.Lines(string(s.read(path.Join(meta, "RECORD")))) {
		file, _, _ := strings.Cut(strings.TrimSpace(line), ",")
		first, _, below := strings.Cut(file, "/")
		switch {
		case first == "" || first == ".." || first == "__pycache__" || path.Base(meta) == first:
		case below:
			names = append(names, first)
		default:
			name, _, _ := strings.Cut(first, ".")
			names = append(names, name)
		}
	}
	return unique(names)
}

// grantedAlone hides grants that are themselves a hidden module.
func (s *moduleSearch) grantedAlone() {
	for _, g := range s.Files.Read {
		p := s.real(g.Path)
		for _, it := range s.names {
			base := path.Base(p)
			if strings.Contains(it.Name, ".") {
				continue
			}
			if isModule(base, it.Name) && s.isFile(p) || base == it.Name && s.isFile(path.Join(p, "__init__.py")) {
				s.hide(p, it.From)
			}
		}
	}
}

// WhyBuiltin says why a module stays.
func WhyBuiltin(name string) string {
	return fmt.Sprintf("interpreters have %q in themselves (built in or frozen), not only in a file: it can still be imported", name)
}

// builtins are modules that CPython, also as Debian builds it, has in its own binary: sys.builtin_module_names, and what has
// been frozen into it since 3.11. A version or build that has one of them in a file all the same gets the warning without need.
func builtins() []string {
	return strings.Fields(`
_abc _ast _bisect _blake2 _codecs _collections _csv _datetime _elementtree _functools _heapq _imp _io _locale _md5 _operator _pickle
_posixsubprocess _random _sha1 _sha2 _sha256 _sha3 _sha512 _signal _socket _sre _stat _statistics _string _struct _suggestions _symtable
_sysconfig _thread _tokenize _tracemalloc _typing _warnings _weakref _zoneinfo array atexit binascii builtins cmath errno faulthandler fcntl
gc grp itertools marshal math posix pwd pyexpat select spwd sys syslog time unicodedata xxsubtype zlib

_collections_abc _frozen_importlib _frozen_importlib_external _sitebuiltins abc codecs genericpath importlib._bootstrap
importlib._bootstrap_external importlib.machinery importlib.util io ntpath os os.path posixpath runpy site stat zipimport`)
}
