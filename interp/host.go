package interp

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// host reads the host's files. Paths may go through symlinks.
type host struct {
	tree hostfs.Tree
	made func(path string) (link, file bool) // by a program of the policy, see rootfs.MadeByPrograms
}

// held reports whether a program of the policy may have made a file, or a symlink on the way to it.
func (h host) held(p string) bool {
	link, file := h.made(p)
	return link || file
}

// redirected reports whether a program of the policy may have made a symlink on the way to a file.
func (h host) redirected(p string) bool {
	link, _ := h.made(p)
	return link
}

func (h host) real(p string) string { return hostfs.RealPath(h.tree, p) }

func (h host) stat(p string) (hostfs.Info, error) { return h.tree.Lstat(h.real(p)) }

func (h host) isDir(p string) bool {
	info, err := h.stat(p)
	return err == nil && info.Mode.IsDir()
}

func (h host) isFile(p string) bool {
	info, err := h.stat(p)
	return err == nil && info.Mode.IsRegular()
}

// read returns the content of a small file, or nothing.
func (h host) read(p string) []byte {
	data, _ := h.tree.ReadFile(h.real(p))
	return data
}

func (h host) list(p string) []string {
	names, _ := h.tree.ReadDir(h.real(p))
	return names
}

// matching lists the paths of the entries of a directory that a pattern matches.
func (h host) matching(dir string, pattern *regexp.Regexp) []string {
	var list []string
	for _, name := range h.list(dir) {
		if pattern.MatchString(name) {
			list = append(list, path.Join(dir, name))
		}
	}
	return list
}

// hops lists a path and, if it is a symlink, each path that leads on from there. The directories of a path are taken as they are
// written, because interpreters do so when they look for their library.
func (h host) hops(p string) []string {
	const most = 40
	list := []string{p}
	for len(list) < most {
		place := path.Join(h.real(path.Dir(p)), path.Base(p))
		text, err := h.tree.Readlink(place)
		if info, lerr := h.tree.Lstat(place); err != nil || lerr != nil || info.Mode.IsRegular() {
			break
		}
		if !path.IsAbs(text) {
			text = path.Join(path.Dir(p), text)
		}
		p = path.Clean(text)
		list = append(list, p)
	}
	return list
}

// patterns match names of files, and lines of them.
type patterns struct {
	versioned, anyPython, inBin, sharedLibs, numbered    *regexp.Regexp
	metadata, separator, finderPth, mapped, distribution *regexp.Regexp
}

func newPatterns() patterns {
	re := regexp.MustCompile
	return patterns{
		versioned:    re(`^(python|pypy)\d+(\.\d+)?t?$`),
		anyPython:    re(`^(python|pypy)[0-9.]*t?$`),
		inBin:        re(`^(python|pypy|pip|pydoc|idle)\d*(\.\d+)?t?(-config)?$`),
		sharedLibs:   re(`^libpython.*\.(so|dylib)`),
		numbered:     re(`\d+\.\d+|\d+-\w`),
		metadata:     re(`^([A-Za-z0-9._]+?)(-[^-]+)*\.(dist-info|egg-info|egg-link)$`),
		distribution: re(`^([A-Za-z0-9._]+?)(-[^-]+)*\.(dist-info|egg-info|egg-link|egg)$`),
		separator:    re(`[-_.]+`),
		finderPth:    re(`^import (__editable__\w+)`),
		mapped:       re(`'[^'\\]*': '(/[^'\\]*)'`),
	}
}

func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// system reports whether a prefix belongs to the system and has much else.
func system(prefix string) bool {
	return slices.Contains([]string{"/", "/usr", "/usr/local"}, prefix)
}

// dedicated reports whether a prefix has one installation and nothing else, so that it can be shown as a whole: it says so,
// or its name has a version, as pyenv, uv, nvm, fnm, volta, sdkman and Debian's Java name theirs. Other prefixes, such as
// ~/.local, have other things too.
func (f *finder) dedicated(prefix string) bool {
	home := f.Env["HOME"]
	if system(prefix) || path.IsAbs(home) && (within(path.Clean(home), prefix) || within(f.real(home), f.real(prefix))) {
		return false
	}
	named := func(p string) bool { return f.re.numbered.MatchString(path.Base(p)) }
	return f.isFile(path.Join(prefix, "pyvenv.cfg")) || f.isDir(path.Join(prefix, "conda-meta")) || named(prefix) || named(f.real(prefix)) ||
		path.Base(prefix) == "installation" && f.re.numbered.MatchString(path.Base(path.Dir(prefix))+"-x")
}

// showPrefix shows a dedicated prefix without the environments below it.
func (f *finder) showPrefix(prefix, from string) {
	f.prefixes = append(f.prefixes, prefix)
	names := f.list(prefix)
	apart := slices.ContainsFunc(names, isNest)
	if !apart {
		f.show(prefix, from)
		return
	}
	for _, name := range names {
		if !isNest(name) {
			f.show(path.Join(prefix, name), from)
		}
	}
}

// isNest names the directories of conda and pyenv that have further environments, and the unpacked packages of all of them.
func isNest(name string) bool { return name == "envs" || name == "pkgs" }
