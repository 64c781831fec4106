package rootfs

import (
	"errors"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
)

// maxLinks is how many symbolic links one path may go through: the kernel's own limit.
const maxLinks = 40

var errLoop = errors.New("too many levels of symbolic links")

// within reports whether p is dir or lies below it. It compares components: "/a/bc" is not within "/a/b".
func within(p, dir string) bool {
	return p == dir || below(p, dir)
}

// Within reports whether a path is a directory or lies below it, by whole components. Both are absolute and clean.
func Within(p, dir string) bool { return within(p, dir) }

// below reports whether p lies strictly below dir.
func below(p, dir string) bool {
	if dir == "/" {
		return p != "/"
	}
	return len(p) > len(dir) && p[len(dir)] == '/' && p[:len(dir)] == dir
}

// rebase gives p, which is within from, its place below to.
func rebase(p, from, to string) string {
	if p == from {
		return to
	}
	return join(to, strings.TrimPrefix(p[len(from):], "/"))
}

func join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

func parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i > 0 {
		return p[:i]
	}
	return "/"
}

func depth(p string) int {
	if p == "/" {
		return 0
	}
	return strings.Count(p, "/")
}

// ups yields p, its parent, and so on to "/".
func ups(p string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for yield(p) && p != "/" {
			p = parent(p)
		}
	}
}

func clean(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && !strings.Contains(p, "\x00")
}

// link is a symbolic link: its own place, no component of which is a link, and what it says.
type link struct {
	place, text string
	last        bool // nothing of the path comes after it
}

// chase follows every link of name, as linkAt shows them, and returns where it ends and the links it went through.
// A place that does not exist is no link: the rest of the name is then taken as it is written.
func chase(name string, linkAt func(place string) (text string, ok bool)) (string, []link, error) {
	at, rest := "/", strings.Split(name, "/")
	var links []link
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = parent(at)
			continue
		}
		place := join(at, part)
		text, ok := linkAt(place)
		if !ok {
			at = place
			continue
		}
		links = append(links, link{place, text, !slices.ContainsFunc(rest, func(p string) bool { return p != "" && p != "." })})
		if len(links) > maxLinks {
			return place, links, errLoop
		}
		rest = append(strings.Split(text, "/"), rest...)
		if path.IsAbs(text) {
			at = "/"
		}
	}
	return at, links, nil
}

// trail is a host path followed to its end.
type trail struct {
	real  string // the end, also where it does not exist
	links []link // the links on the way
	info  Info
}

// places lists every path that the trail of name touches: links too, because one below /proc may lead anywhere.
func (t trail) places(name string) []string {
	list := []string{name, t.real}
	for _, l := range t.links {
		list = append(list, l.place)
	}
	return list
}

// RealPath is a host path with its links followed, as far as it exists.
func RealPath(tree Tree, name string) string {
	t, _ := follow(tree, name)
	return t.real
}

// follow resolves a host path. The trail is filled also where there is an error.
func follow(tree Tree, name string) (trail, error) {
	var t trail
	var err error
	t.real, t.links, err = chase(name, func(place string) (string, bool) { return hostLink(tree, place) })
	if err != nil {
		return t, err
	}
	t.info, err = tree.Lstat(t.real)
	return t, err
}

func hostLink(tree Tree, place string) (string, bool) {
	info, err := tree.Lstat(place)
	if err != nil || info.Mode&fs.ModeSymlink == 0 {
		return "", false
	}
	text, err := tree.Readlink(place)
	return text, err == nil
}

// memoTree remembers what Lstat said: one Compile asks for the same directories thousands of times, and must not see
// two answers.
type memoTree struct {
	Tree
	seen map[string]statResult
}

type statResult struct {
	info Info
	err  error
}

func (m *memoTree) Lstat(p string) (Info, error) {
	if r, ok := m.seen[p]; ok {
		return r.info, r.err
	}
	info, err := m.Tree.Lstat(p)
	m.seen[p] = statResult{info, err}
	return info, err
}

// SomeNames gives at most so many names of a directory, sorted. Which ones is up to the tree.
func SomeNames(tree Tree, dir string, most int) ([]string, error) {
	if t, ok := tree.(interface {
		Some(dir string, most int) ([]string, error)
	}); ok {
		return t.Some(dir, most)
	}
	names, err := tree.ReadDir(dir)
	return names[:min(len(names), most)], err
}
