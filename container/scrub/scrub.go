package scrub

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/record"
)

// maxDepth is how many directories lie in one another; each is open while it is walked.
const maxDepth = 256

// Report is what was done. Its texts have no value in them.
type Report struct {
	Files    int       `json:"files"`    // regular files that were read
	Replaced int       `json:"replaced"` // values
	Changed  []Changed `json:"changed"`
	Left     []Left    `json:"left"` // where values are left, or may be
}

// Changed is a file, or the attributes of a file or directory, that had values.
type Changed struct {
	Path   string         `json:"path"`
	Values map[string]int `json:"values"` // how many, by the name of the variable
	// Elsewhere is how many other hard links the file had that were not named. They keep the old content.
	Elsewhere int `json:"other_links,omitempty"`
}

// Left is a path that was not scrubbed, or not wholly.
type Left struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Scrubber scrubs directories and files.
type Scrubber struct {
	Redactor *record.Redactor // not nil
	DryRun   bool             // only look

	report Report
	links  map[inode]*linked
}

type inode struct{ dev, ino uint64 }

// linked is a file with several hard links that had values.
type linked struct {
	now     inode    // the file that replaces it
	root    *os.File // a path to that file: below this directory
	path    string
	changed int // its index in Report.Changed
	unseen  int // hard links that were not come by yet
}

// target is a directory entry that is scrubbed.
type target struct {
	root  *os.File // O_PATH
	dir   int      // the open directory
	name  string   // in dir
	rel   string   // below root
	shown string   // its path in messages
	stay  uint64   // RESOLVE_NO_XDEV: it must be no mount
}

// Scrub scrubs all that lies at or below the paths. Nothing is changed if one of them cannot be opened.
func (s *Scrubber) Scrub(paths []string) (*Report, error) {
	s.report, s.links = Report{Changed: []Changed{}, Left: []Left{}}, map[inode]*linked{}
	var all []target
	defer func() {
		for _, p := range all { // at the end, because a hard link may lead from a later path to an earlier one
			p.root.Close()
		}
	}()
	for _, name := range paths {
		p, err := named(name)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	for _, p := range all {
		s.entry(p, 0)
	}
	for _, l := range s.links {
		s.report.Changed[l.changed].Elsewhere = l.unseen
	}
	return &s.report, nil
}

// named finds what the caller names. It may be a mount, but no symlink: a program may have made that.
func named(name string) (target, error) {
	none := target{}
	abs, err := filepath.Abs(name)
	if err != nil {
		return none, err
	}
	parent, base := path.Split(abs)
	if base == "" {
		base = "."
	}
	dir, err := unix.Open(parent, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return none, &os.PathError{Op: "open", Path: parent, Err: err}
	}
	p := target{os.NewFile(uintptr(dir), parent), dir, base, base, path.Clean(name), 0}
	var st unix.Stat_t
	if err = unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG, unix.S_IFDIR:
			return p, nil
		case unix.S_IFLNK:
			err = errors.New("a symlink, which is not followed: name what it leads to")
		default:
			err = errors.New("neither a directory nor a regular file")
		}
	}
	p.root.Close()
	return none, fmt.Errorf("open %q: %w", name, err)
}

// open opens an entry without acting on it.
func (p target) open() (int, error) {
	return openat(p.dir, p.name, unix.O_PATH|unix.O_NOFOLLOW, p.stay)
}

func openat(dir int, name string, flags, resolve uint64) (int, error) {
	how := &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | resolve}
	for {
		fd, err := unix.Openat2(dir, name, how)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

func (s *Scrubber) leave(p target, format string, args ...any) {
	s.report.Left = append(s.report.Left, Left{s.Redactor.String(p.shown), s.Redactor.String(fmt.Sprintf(format, args...))})
}

// entry scrubs an entry of a directory that is walked.
func (s *Scrubber) entry(p target, depth int) {
	if s.Redactor.String(p.name) != p.name {
		s.leave(p, "its name has a value in it; rename it")
	}
	fd, err := p.open()
	var st unix.Stat_t
	if err == nil {
		defer unix.Close(fd)
		err = unix.Fstat(fd, &st)
	}
	switch {
	case errors.Is(err, unix.ENOENT): // gone meanwhile
	case errors.Is(err, unix.EXDEV):
		s.leave(p, "another file system is mounted there; name it to have it scrubbed")
	case err != nil:
		s.leave(p, "%v", err)
	default:
		s.take(p, fd, &st, depth)
	}
}

// take scrubs what is open as O_PATH.
func (s *Scrubber) take(p target, fd int, st *unix.Stat_t, depth int) {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		s.directory(p, fd, depth)
	case unix.S_IFREG:
		if err := s.file(p, fd, st); err != nil {
			s.leave(p, "%v", err)
		}
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(fd, "", buf)
		if err != nil {
			s.leave(p, "%v", err)
		} else if text := string(buf[:n]); s.Redactor.String(text) != text {
			s.leave(p, "the target of this symlink has a value in it; remove it")
		}
	} // pipes, sockets and devices have no content
}

// directory scrubs what is in a directory, and gives it back the times that it had.
func (s *Scrubber) directory(p target, at, depth int) {
	if depth == maxDepth {
		s.leave(p, "directories more than %d deep are not looked at", maxDepth)
		return
	}
	dir, st, err := reopen(at, unix.O_DIRECTORY)
	if err != nil {
		s.leave(p, "%v", err)
		return
	}
	defer dir.Close()
	var names []string
	for err == nil { // all of them first: scrubbing makes new entries
		var some []string
		some, err = dir.Readdirnames(1024)
		names = append(names, some...)
	}
	if !errors.Is(err, io.EOF) {
		s.leave(p, "%v", reason(err))
	}
	slices.Sort(names)
	before := len(s.report.Changed)
	for _, name := range names {
		s.entry(target{p.root, int(dir.Fd()), name, path.Join(p.rel, name), path.Join(p.shown, name), unix.RESOLVE_NO_XDEV}, depth+1)
	}
	if err := s.attributes(p, dir); err != nil {
		s.leave(p, "%v", err)
	}
	if len(s.report.Changed) == before || s.DryRun {
		return
	}
	if err := dir.Sync(); err != nil {
		s.leave(p, "sync: %v", reason(err))
	}
	_ = setTimes(dir, st) // a directory of another user keeps the new ones
}

// reopen opens what is open as O_PATH to be read: that very inode, whatever its name leads to by now.
func reopen(at, flags int) (*os.File, *unix.Stat_t, error) {
	name := fmt.Sprintf("/proc/self/fd/%d", at)
	flags |= unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, err := unix.Open(name, flags|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) { // the owner alone may ask for that
		fd, err = unix.Open(name, flags, 0)
	}
	if err != nil {
		return nil, nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd), name), &st, nil
}

func setTimes(f *os.File, st *unix.Stat_t) error {
	return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), []unix.Timespec{st.Atim, st.Mtim}, 0)
}

// reason is an error without the name of the file, which is said beside it.
func reason(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
}
