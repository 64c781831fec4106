package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/flock"
	"github.com/sandboxrun/sandboxrun/fault"
)

// This file has the names in a state directory that belong to pools.

// readyPrefix begins the name of the directory of a sandbox that is ready. No id begins with a dot.
const readyPrefix = ".ready-"

// moveReady gives the directory of a ready sandbox its id.
func (s *Store) moveReady(ready, id string) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	dir, err := s.root.Open(".")
	if err != nil {
		return fmt.Errorf("open state directory: %w", fault.Cause(err))
	}
	defer dir.Close()
	err = unix.Renameat2(int(dir.Fd()), ready, int(dir.Fd()), id, unix.RENAME_NOREPLACE)
	if errors.Is(err, fs.ErrExist) {
		return inUse(id)
	}
	if err != nil {
		return fail(fault.StateUnusable, "", "name sandbox %q: %w", id, err)
	}
	return nil
}

// poolPrefix begins the name of a directory in which a pool listens.
const poolPrefix = ".pool-"

// PoolDir opens the directory in which the pool of a name listens.
func (s *Store) PoolDir(name string) (*os.File, error) {
	if !validID(name) {
		return nil, fs.ErrNotExist
	}
	return s.root.OpenFile(poolPrefix+name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// MakePoolDir makes it. A sweep removes it when nobody has the returned file open any more.
func (s *Store) MakePoolDir(name string) (*os.File, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	err = s.root.Mkdir(poolPrefix+name, 0o700)
	var dir *os.File
	if err == nil {
		dir, err = s.root.Open(poolPrefix + name)
	}
	if err == nil {
		err = flock.Lock(dir, unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		return nil, fail(fault.StateUnusable, fault.DiskHint, "make directory of pool: %w", err)
	}
	return dir, nil
}

// poolEnded reports whether a directory is that of a pool which has ended.
func (s *Store) poolEnded(name string) bool {
	if !strings.HasPrefix(name, poolPrefix) {
		return false
	}
	unlock, err := s.lock()
	if err != nil {
		return false
	}
	defer unlock()
	dir, err := s.root.Open(name)
	if err != nil {
		return false
	}
	defer dir.Close()
	return flock.Lock(dir, unix.LOCK_SH|unix.LOCK_NB) == nil
}
