package hostfs

import (
	"io/fs"
	"path/filepath"

	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// Trail is a host path followed to its end.
type Trail struct {
	Real  string          // the end, also where it does not exist
	Links []pathname.Link // the links on the way
	Info  Info
}

// Touches lists every path that the trail of name touches: links too, because one below /proc may lead anywhere.
func (t Trail) Touches(name string) []string {
	list := []string{name, t.Real}
	for _, l := range t.Links {
		list = append(list, l.At)
	}
	return list
}

// RealPath is a host path with its links followed, as far as it exists.
func RealPath(tree Tree, name string) string {
	t, _ := Follow(tree, name)
	return t.Real
}

// Follow resolves a host path. The trail is filled also where there is an error.
func Follow(tree Tree, name string) (Trail, error) {
	var t Trail
	var err error
	t.Real, t.Links, err = pathname.Chase(name, func(place string) (string, bool) { return HostLink(tree, place) })
	if err != nil {
		return t, err
	}
	t.Info, err = tree.Lstat(t.Real)
	return t, err
}

// HostLink is what the symbolic link at a path says, or false if there is none.
func HostLink(tree Tree, place string) (string, bool) {
	info, err := tree.Lstat(place)
	if err != nil || info.Mode&fs.ModeSymlink == 0 {
		return "", false
	}
	text, err := tree.Readlink(place)
	return text, err == nil
}

// Memo remembers what Lstat said: one Compile asks for the same directories thousands of times, and must not see
// two answers.
type Memo struct {
	Tree
	seen map[string]statResult
}

// NewMemo gives a tree a memory.
func NewMemo(t Tree) *Memo { return &Memo{Tree: t, seen: map[string]statResult{}} }

type statResult struct {
	info Info
	err  error
}

// Lstat gives the same answer each time.
func (m *Memo) Lstat(p string) (Info, error) {
	if r, ok := m.seen[p]; ok {
		return r.info, r.err
	}
	info, err := m.Tree.Lstat(p)
	m.seen[p] = statResult{info, err}
	return info, err
}

// ResolveSoFar resolves the symlinks in the part of a path of the host that exists.
func ResolveSoFar(name string) string {
	rest := ""
	for dir := name; ; dir = filepath.Dir(dir) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, rest)
		}
		if dir == "/" || dir == "." {
			return filepath.Clean(name)
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}
