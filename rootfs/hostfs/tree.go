// Package hostfs reads the host's files and mounts, and changes nothing. Tree is the interface, and Host the machine's own tree. A
// server of a network file system may be stuck, so Host gives each look at one a deadline. Paths are resolved link by link (Follow);
// Locations knows a file by its file system and its path in that, because one file system may be mounted several times.
//
// It imports of ours pathname.
package hostfs

import (
	"io"
	"io/fs"

	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// Inode identifies the file, whatever its name.
func (i Info) Inode() Inode { return Inode{i.Dev, i.Ino} }

// File is a host file that is read in places.
type File interface {
	io.ReaderAt
	io.Closer
}

// MountFlags is a Tree that knows what the host's own mounts refuse.
type MountFlags interface {
	MountFlags(path string) (readOnly, noExec bool)
}

// AccessLists is a Tree that knows which files have access control lists.
type AccessLists interface {
	HasACL(path string) bool
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

// Opener is a Tree whose files can be read in places.
type Opener interface {
	Open(path string) (File, error)
}

// Listed is an entry of a directory. Of a symbolic link Info has the kind alone.
type Listed struct {
	Name string
	Info
}

// lister is a Tree that lists a directory together with what its entries are.
type lister interface {
	List(dir string, dirsOnly bool) ([]Listed, error)
}

// ListDir falls back on one question an entry.
func ListDir(t Tree, dir string, dirsOnly bool) ([]Listed, error) {
	if l, ok := t.(lister); ok {
		return l.List(dir, dirsOnly)
	}
	names, err := t.ReadDir(dir)
	entries := make([]Listed, 0, len(names))
	for _, name := range names {
		info, err := t.Lstat(pathname.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if !dirsOnly || info.Mode.IsDir() {
			entries = append(entries, Listed{name, info})
		}
	}
	return entries, err
}

// Tree is the host's file tree, read-only. Compile reads the host through it alone, so that tests can make hosts up.
// Paths are absolute and clean; the last component is never followed, components before it are never links (Compile
// resolves links itself, one by one, so that it can name the whole chain).
// Errors satisfy errors.Is with fs.ErrNotExist (also where a parent is no directory) or fs.ErrPermission.
type Tree interface {
	Lstat(path string) (Info, error)
	Readlink(path string) (string, error)
	ReadDir(path string) ([]string, error) // names, sorted
	ReadFile(path string) ([]byte, error)  // small files only
	Mounts() []Mount                       // of the host, in the order of mountinfo
}

// Info is what Compile needs to know of a host file.
type Info struct {
	Mode     fs.FileMode
	UID, GID int
	Size     int64 // bytes
	Dev, Ino uint64
	Nlink    uint64
	Modified int64 // nanoseconds since 1970
}
