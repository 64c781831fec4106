package transfer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/fault"
)

// Bounds of one transfer.
const (
	DefaultMax = 1 << 20 // bytes of all files of one path together
	maxEntries = 100_000 // files, directories and links of one path
	maxDepth   = 128     // directories in one another; each is open while it is walked
)

// Dropped is what was not taken along as it was.
type Dropped struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Sink takes what is read. Paths are relative; "." is the top. A directory comes before what is in it.
type Sink interface {
	Dir(name string, mode fs.FileMode) error
	File(name string, mode fs.FileMode, data io.Reader) error
	Link(name, target string) error
}

// Reader reads files below one directory of a view.
type Reader struct {
	Opener *Opener
	Dir    int   // O_PATH
	Max    int64 // bytes; 0: DefaultMax

	sink    Sink
	named   string // by the caller
	left    int64
	entries int
	dropped []Dropped
}

// Read gives a file or a directory, with all that is in it, to a sink. Links in a directory are never followed.
func (r *Reader) Read(name string, sink Sink) ([]Dropped, error) {
	clean, err := Clean(name)
	if err != nil {
		return nil, err
	}
	r.named = name
	fd, err := r.Opener.beneath(r.Dir, clean, onlyRead)
	if err != nil {
		return nil, r.unusable(err)
	}
	return r.ReadOpen(fd, name, sink)
}

// ReadOpen is Read of what is open, and closes it.
func (r *Reader) ReadOpen(fd int, name string, sink Sink) ([]Dropped, error) {
	r.sink, r.named, r.left, r.entries, r.dropped = sink, name, r.max(), 0, nil
	err := r.take(fd, ".", 0)
	return r.dropped, err
}

func (r *Reader) unusable(err error) error {
	switch {
	case errors.Is(err, unix.EXDEV):
		return refused(fault.PathInvalid, r.named, "a link on the way leaves the working directory")
	case errors.Is(err, unix.ENXIO):
		return refused(fault.FileUnusable, r.named, "it is no file or directory")
	}
	return refused(fault.FileUnusable, r.named, "%w", err)
}

func (r *Reader) drop(name, format string, args ...any) {
	r.dropped = append(r.dropped, Dropped{path.Join(r.named, name), fmt.Sprintf(format, args...)})
}

// take reads what is open, and closes it.
func (r *Reader) take(fd int, name string, depth int) error {
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return r.unusable(err)
	}
	if r.entries++; r.entries > maxEntries {
		return refused(fault.FileTooLarge, r.named, "it holds more than %d files", maxEntries)
	}
	mode := fs.FileMode(st.Mode & 0o777)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if depth >= maxDepth {
			return refused(fault.FileTooLarge, r.named, "it holds directories more than %d deep", maxDepth)
		}
		if err := r.sink.Dir(name, mode); err != nil {
			return err
		}
		return r.directory(f, name, depth)
	case unix.S_IFREG:
		return r.file(f, name, mode, &st)
	}
	if name == "." {
		return refused(fault.FileUnusable, r.named, "it is no file or directory")
	}
	r.drop(name, "%s", kind(st.Mode))
	return nil
}

func kind(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return "a named pipe"
	case unix.S_IFSOCK:
		return "a socket"
	}
	return "a device"
}

func (r *Reader) file(f *os.File, name string, mode fs.FileMode, st *unix.Stat_t) error {
	var where unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &where); err != nil {
		return r.unusable(err)
	}
	if where.Type == unix.PROC_SUPER_MAGIC { // it would answer us and not the program
		if name == "." {
			return refused(fault.FileUnusable, r.named, "it is a file of /proc")
		}
		r.drop(name, "a file of /proc")
		return nil
	}
	if st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		r.drop(name, "its set-user-id and set-group-id bits")
	}
	data := &bounded{f, r.left}
	err := r.sink.File(name, mode, data)
	r.left = data.left
	if errors.Is(err, errTooLarge) {
		return refused(fault.FileTooLarge, r.named, "it is larger than %d bytes", r.max())
	}
	return err
}

func (r *Reader) max() int64 {
	if r.Max == 0 {
		return DefaultMax
	}
	return r.Max
}

var errTooLarge = errors.New("the file is larger than allowed")

// bounded fails where there is more. A file may be sparse, and may grow while it is read.
type bounded struct {
	from io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		p = p[:b.left+1]
	}
	n, err := b.from.Read(p)
	if b.left -= int64(n); b.left < 0 {
		b.left = 0
		return 0, errTooLarge
	}
	return n, err
}

func (r *Reader) directory(dir *os.File, name string, depth int) error {
	for {
		names, err := dir.Readdirnames(256)
		for _, n := range names {
			if err := r.child(int(dir.Fd()), path.Join(name, n), n, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return r.unusable(err)
		}
	}
}

// child looks at an entry before it opens it to be read: to open a pipe or a device is to act on it.
func (r *Reader) child(dir int, name, base string, depth int) error {
	fd, err := r.Opener.entry(dir, base, unix.O_PATH)
	if errors.Is(err, unix.ENOENT) {
		return nil // gone meanwhile
	}
	if err != nil {
		r.drop(name, "%v", err)
		return nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return r.unusable(err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return r.link(fd, name, depth)
	case unix.S_IFREG, unix.S_IFDIR:
	default:
		r.drop(name, "%s", kind(st.Mode))
		return nil
	}
	readable, err := r.Opener.entry(dir, base, onlyRead)
	if err != nil {
		r.drop(name, "%v", err)
		return nil
	}
	return r.take(readable, name, depth+1)
}

func (r *Reader) link(fd int, name string, depth int) error {
	if r.entries++; r.entries > maxEntries {
		return refused(fault.FileTooLarge, r.named, "it holds more than %d files", maxEntries)
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return r.unusable(err)
	}
	target := string(buf[:n])
	if !staysBelow(depth, target) {
		r.drop(name, "a link that leaves the directory, to %q", target)
		return nil
	}
	return r.sink.Link(name, target)
}

// Glob gives the paths that a pattern names (path.Match in each part), sorted; a path without a special character is itself. Names
// that begin with a dot match only what says so. No link is followed to list a directory.
func (r *Reader) Glob(pattern string) ([]string, error) {
	clean, err := Clean(pattern)
	if err != nil {
		return nil, err
	}
	if !strings.ContainsAny(clean, `*?[`) {
		return []string{clean}, nil
	}
	if _, err := path.Match(clean, ""); err != nil {
		return nil, refused(fault.PathInvalid, pattern, "the pattern is malformed")
	}
	found := []string{"."}
	for part := range strings.SplitSeq(clean, "/") {
		var next []string
		for _, dir := range found {
			more, err := r.match(dir, part)
			if err != nil {
				return nil, err
			}
			if next = append(next, more...); len(next) > maxEntries {
				return nil, refused(fault.FileTooLarge, pattern, "it names more than %d files", maxEntries)
			}
		}
		found = next
	}
	slices.Sort(found)
	return found, nil
}

func (r *Reader) match(dir, part string) ([]string, error) {
	if !strings.ContainsAny(part, `*?[`) {
		fd, err := r.Opener.entry(r.Dir, path.Join(dir, part), unix.O_PATH)
		if err != nil {
			return nil, nil // what is not there does not match
		}
		unix.Close(fd)
		return []string{path.Join(dir, part)}, nil
	}
	fd, err := r.Opener.entry(r.Dir, dir, onlyRead|unix.O_DIRECTORY)
	if err != nil {
		return nil, nil // it is no directory, or not to be read
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	names, err := f.Readdirnames(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, refused(fault.FileUnusable, dir, "%w", err)
	}
	var found []string
	for _, n := range names {
		if ok, _ := path.Match(part, n); ok && (n[0] != '.' || part[0] == '.') {
			found = append(found, path.Join(dir, n))
		}
	}
	return found, nil
}
