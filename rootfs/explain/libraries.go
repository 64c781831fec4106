package explain

import (
	"path"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs/elf"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// object is a file that is loaded, and by what.
type object struct {
	path, origin string // origin is empty where the loader does not know it
	needs        *elf.Needs
	by           *object
}

// side is where libraries are looked for: inside, or on the host, to say where a missing one is.
type side struct {
	open  func(p string) (hostfs.File, bool)
	cache map[string][]string
}

// libraries goes through what an object needs, and what that needs.
func (l *loading) libraries(root *object) {
	inside, host := l.side(l.openInside), l.side(l.openHost)
	seen := map[string]bool{path.Base(root.needs.Interp): true} // the loader is a library too, and there by now
	for queue := []*object{root}; len(queue) > 0 && len(seen) < elf.MaxNeeded; queue = queue[1:] {
		for _, name := range queue[0].needs.Needed {
			if seen[name] {
				continue
			}
			seen[name] = true
			if found := l.library(inside, host, queue[0], root, name); found != nil {
				queue = append(queue, found)
			}
		}
	}
}

// library notes the need of one, and returns it, from the host if it is not inside.
func (l *loading) library(inside, host side, by, root *object, name string) *object {
	n := Need{Kind: NeedLibrary, Name: name, By: by.path}
	found := l.find(inside, by, root, name)
	switch {
	case found != nil:
		n.OK, n.Path = true, found.path
	default:
		n.Reason = "neither the sandbox nor the host has it where it is looked for"
		if found = l.find(host, by, root, name); found != nil {
			n.Host, n.Reason = found.path, "the host has it as "+pathname.Printable(found.path)+", which is not inside"
		}
	}
	l.p.Needs = append(l.p.Needs, n)
	return found
}

func (l *loading) openInside(p string) (hostfs.File, bool) {
	e := l.resolve(p)
	if !e.Inside() || e.Type != typeFile || !e.Readable {
		return nil, false
	}
	f, err := l.open(e)
	return f, err == nil
}

func (l *loading) openHost(p string) (hostfs.File, bool) {
	t, err := hostfs.Follow(l.seen.Tree, path.Clean(p))
	open, ok := l.Tree.(hostfs.Opener)
	if err != nil || !ok {
		return nil, false
	}
	f, err := open.Open(t.Real)
	return f, err == nil
}

func (l *loading) side(open func(p string) (hostfs.File, bool)) side {
	s := side{open: open}
	f, ok := open("/etc/ld.so.cache")
	if !ok {
		return s
	}
	defer f.Close()
	data := make([]byte, elf.MaxCache)
	n, _ := f.ReadAt(data, 0)
	s.cache = elf.ParseCache(data[:n])
	return s
}

// find looks for a library where the loader would: glibc's or musl's, see ld.so(8).
func (l *loading) find(s side, by, root *object, name string) *object {
	try := func(p string) *object {
		f, ok := s.open(p)
		if !ok {
			return nil
		}
		defer f.Close()
		needs, err := elf.Read(f)
		if err != nil || needs.Class != root.needs.Class || needs.Machine != root.needs.Machine {
			return nil // the loader passes over it too
		}
		return &object{path: p, origin: path.Dir(p), needs: needs, by: by}
	}
	if strings.Contains(name, "/") {
		return try(absolute(l.a.Dir, name))
	}
	if isMusl(root) && isMuslItself(name) {
		return try(root.needs.Interp)
	}
	for _, p := range l.places(s, by, root, name) {
		if o := try(p); o != nil {
			return o
		}
	}
	return nil
}

// places lists the paths that are tried, in order.
func (l *loading) places(s side, by, root *object, name string) []string {
	var list []string
	add := func(o *object, dirs []string) {
		for _, d := range dirs {
			for _, d := range expand(o, root, d) {
				list = append(list, path.Join(absolute(l.a.Dir, d), name))
			}
		}
	}
	always := strings.FieldsFunc(l.a.Env["LD_LIBRARY_PATH"], func(r rune) bool { return r == ':' || r == ';' })
	if isMusl(root) {
		add(root, always)
		for o := by; o != nil; o = o.by {
			add(o, append(o.needs.Rpath, o.needs.Runpath...))
		}
		add(root, l.muslPath(s, root))
		return list
	}
	for o := by; o != nil && len(by.needs.Runpath) == 0; o = o.by {
		if len(o.needs.Runpath) == 0 {
			add(o, o.needs.Rpath)
		}
	}
	add(root, always)
	add(by, by.needs.Runpath)
	if by.needs.Nodeflib {
		return list
	}
	list = append(list, s.cache[name]...)
	triple := map[int]string{62: "x86_64-linux-gnu", 183: "aarch64-linux-gnu"}[root.needs.Machine]
	add(root, []string{"/lib/" + triple, "/usr/lib/" + triple, "/lib64", "/usr/lib64", "/lib", "/usr/lib"})
	return list
}

func isMusl(root *object) bool { return strings.HasPrefix(path.Base(root.needs.Interp), "ld-musl-") }

// isMuslItself reports whether a library is part of musl, and so of its loader, which opens no other file for it.
func isMuslItself(name string) bool {
	part, _, _ := strings.Cut(strings.TrimPrefix(name, "lib"), ".")
	return strings.HasPrefix(name, "lib") && slices.Contains([]string{"c", "pthread", "rt", "m", "dl", "util", "xnet"}, part)
}

// muslPath is musl's own list of directories.
func (l *loading) muslPath(s side, root *object) []string {
	const longest = 4096
	arch := strings.TrimSuffix(strings.TrimPrefix(path.Base(root.needs.Interp), "ld-musl-"), ".so.1")
	f, ok := s.open("/etc/ld-musl-" + arch + ".path")
	if !ok {
		return []string{"/lib", "/usr/local/lib", "/usr/lib"}
	}
	defer f.Close()
	data := make([]byte, longest)
	n, _ := f.ReadAt(data, 0)
	return strings.FieldsFunc(string(data[:n]), func(r rune) bool { return r == ':' || r == '\n' })
}

// expand replaces what stands for directories in a search path: $LIB has two meanings, by how libc was built.
func expand(o, root *object, dir string) []string {
	platform := map[int]string{62: "x86_64", 183: "aarch64"}[root.needs.Machine]
	var list []string
	if o.origin == "" && strings.Contains(dir, "ORIGIN") {
		return nil
	}
	for _, lib := range []string{"lib/" + platform + "-linux-gnu", "lib64"} {
		r := strings.NewReplacer(
			"${ORIGIN}", o.origin, "$ORIGIN", o.origin, "${LIB}", lib, "$LIB", lib, "${PLATFORM}", platform, "$PLATFORM", platform,
		)
		if d := r.Replace(dir); len(list) == 0 || list[0] != d {
			list = append(list, d)
		}
	}
	return list
}

func absolute(dir, p string) string {
	if path.IsAbs(p) {
		return p
	}
	return path.Join(dir, p)
}
