package hostfs

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// direntBytes is the buffer for entries of a directory: most directories fit in it whole.
const direntBytes = 8 << 10

// List lists a directory with what its entries are: all, or the directories alone. It asks the kernel nothing more of a symbolic link.
func (t Host) List(dir string, dirsOnly bool) ([]Listed, error) {
	t.note(askedContent, dir)
	var note func(asked, string)
	if t.trace != nil {
		note = t.note
	}
	return ask(t.servers, dir, func() ([]Listed, error) { return list(dir, dirsOnly, note) })
}

func list(dir string, dirsOnly bool, note func(asked, string)) ([]Listed, error) {
	fd, err := openDir(dir, syscall.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(fd) }()
	var entries []Listed
	err = eachDirent(fd, func(name string, kind byte) error {
		if dirsOnly && kind != syscall.DT_DIR && kind != syscall.DT_UNKNOWN {
			return nil
		}
		info := Info{Mode: fs.ModeSymlink}
		if kind != syscall.DT_LNK {
			var err error
			if note != nil {
				note(askedEntry, pathname.Join(dir, name))
			}
			if info, err = lstatAt(fd, dir, name); err != nil {
				return err
			}
		}
		if !dirsOnly || info.Mode.IsDir() {
			entries = append(entries, Listed{name, info})
		}
		return nil
	})
	return entries, err
}

// Some gives at most so many names of a directory, sorted, without a look at the rest of it.
func (t Host) Some(dir string, most int) ([]string, error) {
	t.note(askedContent, dir)
	return ask(t.servers, dir, func() ([]string, error) { return some(dir, most, syscall.O_NOFOLLOW) })
}

// some lists at most so many names, or all where most is below 0. The flags are those of open(2).
func some(dir string, most, flags int) ([]string, error) {
	fd, err := openDir(dir, flags)
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(fd) }()
	var names []string
	err = eachDirent(fd, func(name string, _ byte) error {
		if len(names) == most {
			return errEnough
		}
		names = append(names, name)
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, treeError(&os.PathError{Op: "read", Path: dir, Err: err})
	}
	slices.Sort(names)
	return names, nil
}

var errEnough = errors.New("enough")

// openDir takes a third of the calls that os.Open does, which asks whether a file can be polled.
func openDir(dir string, flags int) (fd int, err error) {
	for {
		fd, err = syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC|flags, 0)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return -1, treeError(&os.PathError{Op: "open", Path: dir, Err: err})
	}
	return fd, nil
}

// eachDirent calls use for each entry of a directory but "." and "..", until it fails.
func eachDirent(fd int, use func(name string, kind byte) error) error {
	var buf [direntBytes]byte
	for {
		n, err := syscall.ReadDirent(fd, buf[:])
		if err != nil || n <= 0 {
			return err
		}
		for d, rest := NextDirent(buf[:n]); d.Name != ""; d, rest = NextDirent(rest) {
			if err := use(d.Name, d.Kind); err != nil {
				return err
			}
		}
	}
}

// lstat makes an Info without what else os.Lstat makes.
func lstat(p string) (Info, error) {
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		return Info{}, treeError(&os.PathError{Op: "lstat", Path: p, Err: err})
	}
	return infoOf(&st), nil
}

// lstatAt is lstat of an entry of a directory that is open: the kernel looks up one name, and not the directory's again.
func lstatAt(fd int, dir, name string) (Info, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Info{}, treeError(&os.PathError{Op: "lstat", Path: pathname.Join(dir, name), Err: err})
	}
	return infoOf(&st), nil
}

func infoOf(st *unix.Stat_t) Info {
	return Info{
		Mode: fileMode(st.Mode), UID: int(st.Uid), GID: int(st.Gid), Size: st.Size,
		Dev: st.Dev, Ino: st.Ino, Nlink: uint64(st.Nlink), Modified: st.Mtim.Nano(),
	}
}

// fileMode is a mode of the kernel's in Go's terms.
func fileMode(m uint32) fs.FileMode {
	mode := fs.FileMode(m & 0o777)
	if m&syscall.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if m&syscall.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if m&syscall.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	switch m & syscall.S_IFMT {
	case syscall.S_IFREG:
	case syscall.S_IFDIR:
		mode |= fs.ModeDir
	case syscall.S_IFLNK:
		mode |= fs.ModeSymlink
	case syscall.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case syscall.S_IFSOCK:
		mode |= fs.ModeSocket
	case syscall.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	default:
		mode |= fs.ModeDevice
	}
	return mode
}
