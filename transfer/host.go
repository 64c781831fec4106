package transfer

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/fault"
)

// HostSink writes what is read to one new file or directory of the host. Nothing that stands there is followed: a file replaces a file or
// symlink that has its name, and a directory must not be there yet. The program may be able to write in the directory above.
type HostSink struct {
	Parent *os.File // the directory above; may be O_PATH
	Name   string   // in it
	Owner  *[2]int  // uid and gid of all that is made; nil, or -1: the caller's
	Sparse bool     // holes of files stay holes, and count nothing

	dirs []hostDir // that are being written, from the top
}

type hostDir struct {
	f    *os.File
	name string // relative to the top
	mode fs.FileMode
}

const (
	newFile   = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	directory = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
)

// at gives the directory that an entry is made in, and its name there.
func (h *HostSink) at(name string) (dir int, base string, err error) {
	if name == "." {
		return int(h.Parent.Fd()), h.Name, nil
	}
	parent := path.Dir(name)
	for len(h.dirs) > 0 && h.dirs[len(h.dirs)-1].name != parent {
		if err := h.leave(); err != nil {
			return -1, "", err
		}
	}
	if len(h.dirs) == 0 {
		return -1, "", fmt.Errorf("write %q: it comes before its directory", name)
	}
	return int(h.dirs[len(h.dirs)-1].f.Fd()), path.Base(name), nil
}

// leave gives a directory its mode once all is in it.
func (h *HostSink) leave() error {
	last := h.dirs[len(h.dirs)-1]
	h.dirs = h.dirs[:len(h.dirs)-1]
	err := last.f.Chmod(last.mode | 0o700)
	last.f.Close()
	return err
}

// Dir makes a directory.
func (h *HostSink) Dir(name string, mode fs.FileMode) error {
	dir, base, err := h.at(name)
	if err != nil {
		return err
	}
	if err := unix.Mkdirat(dir, base, 0o700); errors.Is(err, unix.EEXIST) {
		return fault.New(fault.OutputExists, "remove it, or name another directory", "make directory %q: %w", base, err)
	} else if err != nil {
		return fmt.Errorf("make directory %q: %w", base, err)
	}
	fd, err := unix.Openat(dir, base, directory, 0)
	if err != nil {
		return fmt.Errorf("open directory %q: %w", base, err)
	}
	f := os.NewFile(uintptr(fd), base)
	h.dirs = append(h.dirs, hostDir{f, name, mode})
	return h.own(f)
}

// replaceable refuses what a file must not take the place of: a device, a pipe, or a name of one, such as /dev/stdout, is the whole machine's.
// Any other symlink is replaced, and not followed.
func replaceable(dir int, base string) error {
	var st unix.Stat_t
	err := unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	kind := st.Mode & unix.S_IFMT
	if err == nil && kind != unix.S_IFREG && (kind != unix.S_IFLNK || namesDevice(dir, base)) {
		return fault.New(fault.OutputExists, "name another file", "%q: it is there already and is no ordinary file", base)
	}
	return nil
}

func namesDevice(dir int, link string) bool {
	to := make([]byte, len("/proc/"))
	n, err := unix.Readlinkat(dir, link, to)
	return err != nil || string(to[:n]) == "/proc/" || strings.HasPrefix(string(to[:n]), "/dev/")
}

func (h *HostSink) own(f *os.File) error {
	if h.Owner == nil || h.Owner[0] < 0 {
		return nil
	}
	return f.Chown(h.Owner[0], h.Owner[1])
}

// File writes a file. It appears whole or not at all.
func (h *HostSink) File(name string, mode fs.FileMode, data io.Reader) error {
	dir, base, err := h.at(name)
	if err != nil {
		return err
	}
	if err := replaceable(dir, base); err != nil {
		return err
	}
	tmp := ".sandboxrun-" + strings.ToLower(rand.Text())
	fd, err := unix.Openat(dir, tmp, newFile, 0o600)
	if err != nil {
		return fmt.Errorf("make %q: %w", base, err)
	}
	f := os.NewFile(uintptr(fd), base)
	if c, ok := data.(*content); ok && h.Sparse {
		err = c.copySparse(f)
	} else {
		_, err = io.Copy(struct{ io.Writer }{f}, data)
	}
	if err == nil {
		err = h.own(f)
	}
	if err == nil {
		err = f.Chmod(mode &^ 0o022)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = unix.Renameat(dir, tmp, dir, base)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, tmp, 0)
		return fmt.Errorf("write %q: %w", base, err)
	}
	return nil
}

// Link makes a link.
func (h *HostSink) Link(name, target string) error {
	dir, base, err := h.at(name)
	if err == nil {
		err = unix.Symlinkat(target, dir, base)
	}
	if err == nil && h.Owner != nil && h.Owner[0] >= 0 {
		err = unix.Fchownat(dir, base, h.Owner[0], h.Owner[1], unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return fmt.Errorf("make link %q: %w", base, err)
	}
	return nil
}

// Close finishes the directories.
func (h *HostSink) Close() error {
	var first error
	for len(h.dirs) > 0 {
		if err := h.leave(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
