// Package pathname compares and joins absolute, clean paths by whole components, walks over symbolic links, and prints names that a
// program may have chosen. It makes no system call and imports none of ours.
package pathname

import (
	"errors"
	"iter"
	"path"
	"slices"
	"strings"
)

// MaxLinks is how many symbolic links one path may go through: the kernel's own limit.
const MaxLinks = 40

// ErrLoop is the error of Chase for more than MaxLinks links.
var ErrLoop = errors.New("too many levels of symbolic links")

// Within reports whether p is dir or lies below it. It compares components: "/a/bc" is not within "/a/b".
func Within(p, dir string) bool {
	return p == dir || Below(p, dir)
}

// Below reports whether p lies strictly below dir.
func Below(p, dir string) bool {
	if dir == "/" {
		return p != "/"
	}
	return len(p) > len(dir) && p[len(dir)] == '/' && p[:len(dir)] == dir
}

// Rest is the part of p below dir, "." for dir itself. It is false if p is not within dir.
func Rest(p, dir string) (string, bool) {
	switch {
	case p == dir:
		return ".", true
	case Below(p, dir):
		return strings.TrimPrefix(p[len(dir):], "/"), true
	}
	return "", false
}

// Rebase gives p, which is within from, its place below to.
func Rebase(p, from, to string) string {
	if p == from {
		return to
	}
	return Join(to, strings.TrimPrefix(p[len(from):], "/"))
}

// Join adds one name to a directory.
func Join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// Parent is the directory of a path; of "/" it is "/".
func Parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i > 0 {
		return p[:i]
	}
	return "/"
}

// Depth is the number of components.
func Depth(p string) int {
	if p == "/" {
		return 0
	}
	return strings.Count(p, "/")
}

// Ups yields p, its parent, and so on to "/".
func Ups(p string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for yield(p) && p != "/" {
			p = Parent(p)
		}
	}
}

// Clean reports whether a path is absolute and written in the one way in which this package compares paths.
func Clean(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && !strings.Contains(p, "\x00")
}

// Link is a symbolic link: its own place, no component of which is a link, and what it says.
type Link struct {
	At, Text string
	Last     bool // nothing of the path comes after it
}

// Chase follows every link of name, as linkAt shows them, and returns where it ends and the links it went through.
// A place that does not exist is no link: the rest of the name is then taken as it is written.
func Chase(name string, linkAt func(place string) (text string, ok bool)) (string, []Link, error) {
	at, rest := "/", strings.Split(name, "/")
	var links []Link
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = Parent(at)
			continue
		}
		place := Join(at, part)
		text, ok := linkAt(place)
		if !ok {
			at = place
			continue
		}
		links = append(links, Link{place, text, !slices.ContainsFunc(rest, func(p string) bool { return p != "" && p != "." })})
		if len(links) > MaxLinks {
			return place, links, ErrLoop
		}
		rest = append(strings.Split(text, "/"), rest...)
		if path.IsAbs(text) {
			at = "/"
		}
	}
	return at, links, nil
}

// KernelPlace names the one of /proc, /dev and /sys that one of the paths lies in. Other code mounts these, and what
// the host has there is a way out of the sandbox.
func KernelPlace(paths ...string) string {
	for _, p := range paths {
		for _, dir := range []string{"/proc", "/dev", "/sys"} {
			if Within(p, dir) {
				return dir
			}
		}
	}
	return ""
}

// SortedUnique sorts a list in place and drops what is there twice.
func SortedUnique(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}
