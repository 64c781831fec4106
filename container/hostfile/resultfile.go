package hostfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// File is a file of the host that a result is written to beside the program's streams. It lies where the program cannot
// see it, and appears whole or not at all.
type File struct {
	name string // for the user
	dir  *os.File
	base string
	new  string // its name until it is whole
	f    *os.File
}

// Open makes the file. Its directory must exist and be out of the program's sight, and no link on the way may stand
// where the program could have put it. A file that is there is replaced.
func Open(name string, sees *trust.Shown) (*File, error) {
	const what = "result directory"
	parent, base, err := split(name)
	if err != nil {
		return nil, err
	}
	w := trust.Walk{Rest: strings.Split(parent, "/"), Follow: func(dir *os.File) error {
		return sees.Refuse(dir, "a link on the way to "+what, parent)
	}}
	missing, err := w.Go()
	if err == nil && missing != "" {
		err = unix.ENOENT
	}
	if err == nil {
		err = sees.Refuse(w.At, what, parent)
	}
	if err != nil {
		if w.At != nil {
			w.At.Close()
		}
		if _, ok := errors.AsType[*fault.Error](err); ok {
			return nil, err
		}
		return nil, fault.New(fault.OutputDirUnusable, "", "open %s %q: %w", what, parent, err)
	}
	return newResultFile(name, w.At, base)
}

// Write writes a result where there is no sandbox to see what it shows: it follows no link at all.
func Write(name string, data []byte) error {
	parent, base, err := split(name)
	if err != nil {
		return err
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, parent, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return fault.New(fault.OutputDirUnusable, "", "open result directory %q: %w", parent, err)
	}
	f, err := newResultFile(name, os.NewFile(uintptr(fd), parent), base)
	if err != nil {
		return err
	}
	return f.Commit(data)
}

// Begun is a file that somebody else has begun: in a directory, under a name that it has until it is whole. name is what the user
// calls it.
func Begun(name string, dir *os.File, temporary string, f *os.File) *File {
	_, base, _ := split(name)
	return &File{name: name, dir: dir, base: base, new: temporary, f: f}
}

func split(name string) (parent, base string, err error) {
	parent, base = filepath.Split(name)
	if base == "" || base == "." || base == ".." {
		return "", "", fault.New(fault.OutputDirUnusable, "name a file", "%q is no file that a result can be written to", name)
	}
	return parent, base, nil
}

func newResultFile(name string, dir *os.File, base string) (*File, error) {
	r := &File{name: name, dir: dir, base: base, new: forkexec.ResultPrefix + strings.ToLower(rand.Text())}
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		dir.Close()
		return nil, fault.New(fault.OutputExists, "name another file, or give an open file descriptor by its number",
			"%q is there already and is no ordinary file", name)
	}
	if r.f, err = newFileAt(dir, r.new); err != nil {
		dir.Close()
		return nil, fault.New(fault.OutputDirUnusable, "", "make %q: %w", name, err)
	}
	return r, nil
}

// Commit writes the result and gives the file its name.
func (r *File) Commit(data []byte) error {
	defer r.dir.Close()
	_, err := r.f.Write(data)
	if cerr := r.f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = unix.Renameat(int(r.dir.Fd()), r.new, int(r.dir.Fd()), r.base)
	}
	if err != nil {
		_ = unix.Unlinkat(int(r.dir.Fd()), r.new, 0)
		return fmt.Errorf("write %q: %w", r.name, fault.Cause(err))
	}
	return nil
}

// Discard removes what was made: there is no result.
func (r *File) Discard() {
	if r == nil {
		return
	}
	r.f.Close()
	_ = unix.Unlinkat(int(r.dir.Fd()), r.new, 0)
	r.dir.Close()
}
