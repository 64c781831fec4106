package interp

import (
	"io/fs"
	"path"
	"slices"

	"github.com/sandboxrun/sandboxrun/rootfs"
)

// mostEmpty is the number of site directories that are hidden. A program could make any number of them, and each takes a mount.
const mostEmpty = 200

// mostEntries ends the search for site directories in one grant: it takes about half a second.
const mostEntries = 200_000

// hideOthers has every site directory that is shown and belongs to none of the named interpreters shown empty.
func (f *finder) hideOthers() {
	var dirs []string
	switch f.Files.Base.Kind {
	case "", rootfs.BaseSystem:
		dirs = f.baseSites("/")
	case rootfs.BaseHost:
		dirs = append(f.baseSites("/"), f.search("/opt")...)
		dirs = append(dirs, f.search("/srv")...)
	case rootfs.BaseRootfs:
		dirs = append(f.baseSites(f.Files.Base.Dir), f.search(path.Join(f.Files.Base.Dir, "opt"))...)
	}
	for _, prefix := range f.prefixes {
		dirs = append(dirs, f.sitesOf(prefix)...)
	}
	for _, source := range append(f.sources(), f.trees...) {
		dirs = append(dirs, f.search(source)...)
	}
	seen := map[string]bool{}
	for _, dir := range dirs {
		real := f.real(dir)
		if f.sites[real] || seen[real] || f.asked(real) {
			continue
		}
		if seen[real] = true; len(seen) > mostEmpty {
			f.out.Partial = append(f.out.Partial, dir)
			continue
		}
		f.out.Empty = append(f.out.Empty, rootfs.Grant{Path: real, From: f.Interpreters[0].From})
	}
	slices.SortFunc(f.out.Empty, func(a, b rootfs.Grant) int { return compare(a.Path, b.Path) })
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// asked reports whether the policy itself names a directory.
func (f *finder) asked(real string) bool {
	return slices.Contains(f.sources(), real)
}

// baseSites lists the site directories of the system's interpreters below a root.
func (f *finder) baseSites(root string) []string {
	return append(f.sitesOf(path.Join(root, "usr")), f.sitesOf(path.Join(root, "usr/local"))...)
}

// sources lists the real paths of what the policy grants.
func (f *finder) sources() []string {
	var list []string
	for _, grants := range [][]rootfs.Grant{f.Files.Read, f.Files.Write} {
		for _, g := range grants {
			list = append(list, f.real(g.Path))
		}
	}
	for _, b := range f.Files.Binds {
		list = append(list, f.real(b.Source))
	}
	if w := f.Files.Workspace; w != nil && path.IsAbs(w.Source) {
		list = append(list, f.real(w.Source))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// search looks for site directories below a directory, the nearest first, and follows no symlink.
func (f *finder) search(top string) []string {
	var found []string
	f.walk(top, func(dir string) bool {
		if !f.isSite(dir) {
			return true
		}
		found = append(found, dir)
		return false
	})
	return found
}

// walk calls enter with a directory and those below it, the nearest first, until it has seen too many entries. It goes on below a directory
// if enter says so, and follows no symlink.
func (f *finder) walk(top string, enter func(dir string) bool) {
	left := mostEntries
	for queue := []string{f.real(top)}; len(queue) > 0; queue = queue[1:] {
		dir := queue[0]
		if info, err := f.tree.Lstat(dir); err != nil || !info.Mode.IsDir() || !enter(dir) {
			continue
		}
		for _, name := range f.list(dir) {
			if left--; left < 0 {
				f.out.Partial = append(f.out.Partial, top)
				return
			}
			p := path.Join(dir, name)
			if info, err := f.tree.Lstat(p); err == nil && info.Mode.Type() == fs.ModeDir {
				queue = append(queue, p)
			}
		}
	}
}

// isSite reports whether a path is that of a site directory: …/pythonX.Y/site-packages.
func (f *finder) isSite(p string) bool {
	return slices.Contains(siteNames(), path.Base(p)) && f.re.anyPython.MatchString(path.Base(path.Dir(p)))
}
