package roottest

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// Files is the file tree of a host. A value that begins with "->" is a link, one that ends in "/" a
// directory, anything else a file's content.
type Files map[string]string

// Lstat implements hostfs.Tree.
func (t Files) Lstat(p string) (hostfs.Info, error) {
	v, ok := t[p]
	info := hostfs.Info{Dev: 1, Ino: uint64(len(p)), Nlink: 1}
	switch {
	case p == "/" || ok && v == "/":
		info.Mode = fs.ModeDir | 0o755
	case !ok:
		return info, fs.ErrNotExist
	case strings.HasPrefix(v, "->"):
		info.Mode = fs.ModeSymlink | 0o777
	default:
		info.Mode = 0o644
	}
	return info, nil
}

// Readlink implements hostfs.Tree.
func (t Files) Readlink(p string) (string, error) {
	if v, ok := strings.CutPrefix(t[p], "->"); ok {
		return v, nil
	}
	return "", fs.ErrInvalid
}

// ReadDir implements hostfs.Tree.
func (t Files) ReadDir(p string) ([]string, error) {
	var names []string
	for q := range t {
		if path.Dir(q) == p {
			names = append(names, path.Base(q))
		}
	}
	slices.Sort(names)
	return names, nil
}

// ReadFile implements hostfs.Tree.
func (t Files) ReadFile(p string) ([]byte, error) {
	if info, err := t.Lstat(p); err != nil || !info.Mode.IsRegular() {
		return nil, fs.ErrNotExist
	}
	return []byte(t[p]), nil
}

// Mounts implements hostfs.Tree.
func (t Files) Mounts() []hostfs.Mount { return nil }
