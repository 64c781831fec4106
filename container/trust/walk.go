package trust

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Walk walks to a directory of the host's as the kernel does, but asks before it follows a link.
type Walk struct {
	At     *os.File // the directory that has been reached
	Rest   []string
	links  int
	File   bool                     // the path may end at what is no directory
	Follow func(dir *os.File) error // may refuse to follow a link that stands in dir
}

// MostLinks is how many links are followed on one path, as many as the kernel follows.
const MostLinks = 40

// Go gives the last name of the path where only that does not exist; then at is its parent.
func (w *Walk) Go() (missing string, err error) {
	if err := w.to(unix.AT_FDCWD, "/"); err != nil {
		return "", err
	}
	for len(w.Rest) > 0 {
		name := w.Rest[0]
		w.Rest = w.Rest[1:]
		if name == "" || name == "." {
			continue
		}
		err := w.step(name)
		if errors.Is(err, unix.ENOENT) && strings.Join(w.Rest, "") == "" {
			return name, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

func (w *Walk) to(dir int, name string) error {
	return w.open(dir, name, unix.O_DIRECTORY|unix.O_NOFOLLOW)
}

func (w *Walk) open(dir int, name string, flags int) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return err
	}
	if w.At != nil {
		w.At.Close()
	}
	w.At = os.NewFile(uintptr(fd), name)
	return nil
}

func (w *Walk) step(name string) error {
	at := int(w.At.Fd())
	var st unix.Stat_t
	if err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return w.to(at, name)
	case unix.S_IFLNK:
	default:
		if w.File && len(w.Rest) == 0 {
			return w.open(at, name, unix.O_NOFOLLOW)
		}
		return unix.ENOTDIR
	}
	if w.links++; w.links > MostLinks {
		return unix.ELOOP
	}
	if err := w.Follow(w.At); err != nil {
		return err
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(at, name, buf)
	if err != nil {
		return err
	}
	target := string(buf[:n])
	w.Rest = append(strings.Split(target, "/"), w.Rest...)
	if strings.HasPrefix(target, "/") {
		return w.to(unix.AT_FDCWD, "/")
	}
	return nil
}
