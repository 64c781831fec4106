// Package made owns the directories that sandboxrun makes on disk for one sandbox: a workspace of source = "disk", and private copies of
// what the policy binds with copy = true. It makes them, and removes them again when programs have done in them what they like: trees of
// any depth, directories without permissions, any number of files. The notes of them in a state directory are its own too.
//
// It may import fault, flock, rootfs, spec and transfer.
package made

import (
	"crypto/rand"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/transfer"
)

// parentDir is where they are made if the policy does not say. It is on disk by custom; state directories are in memory.
const parentDir = "/var/tmp"

// Record is what is noted of a directory before it is made, and when it is there.
type Record struct {
	Path     string `json:"path"`
	Dev, Ino uint64 `json:",omitempty"`
}

// Name chooses a path for the directory.
func Name(parent string) Record {
	return Record{Path: filepath.Join(parent, "sandboxrun-"+strings.ToLower(rand.Text()))}
}

// Mkdir makes the directory, for the caller alone.
func (r *Record) Mkdir() (*os.File, error) {
	err := os.Mkdir(r.Path, 0o700)
	if err != nil {
		return nil, fault.New(fault.WorkspaceUnusable, "choose another directory with workspace.parent", "make a directory on disk: %w", err)
	}
	fd, err := unix.Open(r.Path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fault.New(fault.WorkspaceUnusable, "", "open %q: %w", r.Path, err)
	}
	f := os.NewFile(uintptr(fd), r.Path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, fault.New(fault.WorkspaceUnusable, "", "look at %q: %w", r.Path, err)
	}
	r.Dev, r.Ino = st.Dev, st.Ino
	return f, nil
}

// Dir makes a directory in it, with an owner.
func Dir(base *os.File, name string, uid, gid int) error {
	if err := unix.Mkdirat(int(base.Fd()), name, 0o755); err != nil {
		return fault.New(fault.WorkspaceUnusable, "", "make %q: %w", name, err)
	}
	if err := unix.Fchownat(int(base.Fd()), name, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fault.New(fault.WorkspaceUnusable, "", "give %q to uid %d: %w", name, uid, err)
	}
	return nil
}

// Point makes a mount point in it, with the directories on the way. Nobody else can write there yet.
func Point(base *os.File, name string, dir bool, uid, gid int) error {
	at := ""
	for part := range strings.SplitSeq(name, "/") {
		at = filepath.Join(at, part)
		var err error
		if at == name && !dir {
			err = unix.Mknodat(int(base.Fd()), at, unix.S_IFREG|0o644, 0)
		} else {
			err = unix.Mkdirat(int(base.Fd()), at, 0o755)
		}
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err == nil {
			err = unix.Fchownat(int(base.Fd()), at, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
		}
		if err != nil {
			return fault.New(fault.WorkspaceUnusable, "", "make %q: %w", at, err)
		}
	}
	return nil
}

// Copy copies a file or directory of the host into it. No part of source is a link. Of what is in it, skip leaves out what it says of.
func Copy(base *os.File, name, source string, uid, gid int, skip func(rel string) bool) ([]transfer.Dropped, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, source, &how)
	if err != nil {
		return nil, fault.New(fault.GrantMissing, "did it change just now?", "copy %q: %w", source, err)
	}
	sink := &transfer.HostSink{Parent: base, Name: name, Sparse: true, Owner: &[2]int{uid, gid}}
	r := transfer.Reader{Opener: &transfer.Opener{}, Max: math.MaxInt64 - 1, Skip: skip}
	dropped, err := r.ReadOpen(fd, source, sink)
	if cerr := sink.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return dropped, fault.New(fault.WorkspaceUnusable, "", "copy %q: %w", source, err)
	}
	return dropped, nil
}

// Remove removes the directory with all that is in it. What stands at its path and is another file is left alone.
func (r Record) Remove() error {
	parent, err := unix.Open(filepath.Dir(r.Path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fault.New(fault.WorkspaceUnusable, "", "remove %q: %w", r.Path, err)
	}
	defer unix.Close(parent)
	name := filepath.Base(r.Path)
	var st unix.Stat_t
	err = unix.Fstatat(parent, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err == nil && r.Ino != 0 && (st.Dev != r.Dev || st.Ino != r.Ino):
		return nil // it is gone, and something else has its name
	case err == nil && r.Ino != 0: // without a number nothing was ever made in it
		err = empty(parent, name)
	}
	if err == nil {
		err = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fault.New(fault.WorkspaceUnusable, "remove it yourself", "remove %q: %w", r.Path, err)
	}
	return nil
}

// open opens a directory to be emptied, whatever its mode is; never through a link.
func open(dir int, name string) (*os.File, error) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	self := "/proc/self/fd/" + strconv.Itoa(fd)
	if err := unix.Chmod(self, 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(self, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// empty removes what is in a directory. A directory that is not empty is first moved to the top, so neither depth nor length of paths matters,
// and two directories are open at most.
func empty(dir int, name string) error {
	top, err := open(dir, name)
	if err != nil {
		return err
	}
	defer top.Close()
	return each(top, func(entry string) error {
		err := unlink(top, entry)
		if !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
		d, err := open(int(top.Fd()), entry)
		if err != nil {
			return err
		}
		defer d.Close()
		err = each(d, func(below string) error {
			err := unlink(d, below)
			if !errors.Is(err, unix.ENOTEMPTY) {
				return err
			}
			c, err := open(int(d.Fd()), below) // to move a directory takes the right to write to it
			if err != nil {
				return err
			}
			c.Close()
			return unix.Renameat2(int(d.Fd()), below, int(top.Fd()), ".sandboxrun-"+rand.Text(), unix.RENAME_NOREPLACE)
		})
		if err != nil {
			return err
		}
		return unix.Unlinkat(int(top.Fd()), entry, unix.AT_REMOVEDIR)
	})
}

// unlink removes a file, or a directory that is empty; else the error is ENOTEMPTY.
func unlink(dir *os.File, name string) error {
	err := unix.Unlinkat(int(dir.Fd()), name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// each calls do, which removes it, for each entry of a directory until there is none.
func each(dir *os.File, do func(name string) error) error {
	for read := 0; ; {
		names, err := dir.Readdirnames(1000)
		for _, n := range names {
			if err := do(n); err != nil {
				return err
			}
		}
		read += len(names)
		switch {
		case errors.Is(err, io.EOF) && read == 0:
			return nil
		case errors.Is(err, io.EOF): // what was added or passed over meanwhile
			read = 0
			_, err = dir.Seek(0, io.SeekStart)
		}
		if err != nil {
			return err
		}
	}
}
