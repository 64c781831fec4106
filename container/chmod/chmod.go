package chmod

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// theirCall is a call of a process that waits for its answer. What it names is resolved in its own view: its root, its mounts. The
// kernel checks the program's rights, because the thread that does it has no others. A program that changes the name, or the files,
// meanwhile has only chosen another of the files whose mode it may set.
type theirCall struct {
	proc int // its directory in /proc
	mode uint32
}

// text reads a path out of its memory.
func (c theirCall) text(at uint64) (string, error) {
	fd, err := unix.Openat(c.proc, "mem", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", unix.EPERM
	}
	defer unix.Close(fd)
	buf := make([]byte, unix.PathMax)
	n, err := unix.Pread(fd, buf, int64(at))
	if err != nil || n <= 0 {
		return "", unix.EFAULT
	}
	if end := slices.Index(buf[:n], 0); end >= 0 {
		return string(buf[:end]), nil
	}
	return "", unix.ENAMETOOLONG
}

func (c theirCall) setByDescriptor(n int) error {
	fd, err := unix.Openat(c.proc, fmt.Sprintf("fd/%d", n), unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return unix.EBADF
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return c.apply(fd)
}

func (c theirCall) set(dirfd int, name string, flags int) error {
	if flags&^(unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH) != 0 {
		return unix.EINVAL
	}
	if name == "" && flags&unix.AT_EMPTY_PATH == 0 {
		return unix.ENOENT
	}
	if name == "" && dirfd == unix.AT_FDCWD {
		name = "."
	}
	nofollow := flags&unix.AT_SYMLINK_NOFOLLOW != 0
	if name == "" {
		return c.setByDescriptor(dirfd)
	}
	if n, ok := ownDescriptor(name); ok && !nofollow && c.seesProc() {
		return c.setByDescriptor(n)
	}
	fd, err := c.open(dirfd, name, nofollow)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return c.apply(fd)
}

// ownDescriptor says which of its own descriptors a path names. The C library sets the mode of a file that must not be a symlink by such
// a path, where the kernel has no fchmodat2. For us /proc/self is another process.
func ownDescriptor(name string) (int, bool) {
	for _, dir := range []string{"/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"} {
		if rest, ok := strings.CutPrefix(name, dir); ok {
			n, err := strconv.ParseUint(rest, 10, 31)
			return int(n), err == nil
		}
	}
	return 0, false
}

// seesProc reports whether it has a /proc (processes.proc).
func (c theirCall) seesProc() bool {
	fd, err := unix.Openat(c.proc, "root/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.PROC_SUPER_MAGIC
}

// open finds a path below its root, without magic links.
func (c theirCall) open(dirfd int, name string, nofollow bool) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	if nofollow {
		how.Flags |= unix.O_NOFOLLOW
	}
	base := ""
	if !path.IsAbs(name) {
		dir, at, err := c.directory(dirfd)
		if err != nil {
			return -1, err
		}
		defer unix.Close(dir)
		if fd, err := unix.Openat2(dir, name, &how); !errors.Is(err, unix.EXDEV) {
			return fd, err
		}
		base = at + "/" // not cleaned: ".." after a link leads elsewhere
	}
	root, err := unix.Openat(c.proc, "root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, unix.EPERM
	}
	defer unix.Close(root)
	if base != "" {
		if err := c.leadsTo(root, base, dirfd); err != nil {
			return -1, err
		}
	}
	how.Resolve = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
	return unix.Openat2(root, base+name, &how)
}

// link is the link in /proc to the directory that a relative path begins at.
func link(dirfd int) string {
	if dirfd == unix.AT_FDCWD {
		return "cwd"
	}
	return fmt.Sprintf("fd/%d", dirfd)
}

// directory opens the directory that a relative path begins at. at is its path below the root, as far as that is known.
func (c theirCall) directory(dirfd int) (fd int, at string, err error) {
	if fd, err = unix.Openat(c.proc, link(dirfd), unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return -1, "", unix.EBADF
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(c.proc, link(dirfd), buf)
	if err != nil || n == len(buf) {
		unix.Close(fd)
		return -1, "", unix.ENAMETOOLONG
	}
	return fd, string(buf[:n]), nil
}

// leadsTo makes sure that the path of a directory leads to it: it may have been moved, or covered.
func (c theirCall) leadsTo(root int, name string, dirfd int) error {
	var is, there unix.Stat_t
	if err := unix.Fstatat(c.proc, link(dirfd), &is, 0); err != nil {
		return unix.EBADF
	}
	fd, err := unix.Openat2(root, name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &there); err != nil || there.Dev != is.Dev || there.Ino != is.Ino {
		return unix.EPERM
	}
	return nil
}

// apply sets the mode of what is open, less the bits that it must not have. What is open does not become another file.
func (c theirCall) apply(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	mode := c.mode & 0o1777
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return unix.EOPNOTSUPP // it has no mode of its own
	case unix.S_IFDIR:
		mode |= c.mode & unix.S_ISGID // which the kernel leaves out where the program is not in the group
	}
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
}
