package container

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/flock"
	"github.com/sandboxrun/sandboxrun/container/relayproc"
	"github.com/sandboxrun/sandboxrun/fault"
)

// A sandbox that has ended is removed by one process at a time, be it a delete or one of the sweeps that every create and
// run begins with. The remover claims the sandbox: it takes the sandbox's lock, which process 1 held, and marks the lock
// file. In the end it renames the directory, so that others see all of a sandbox or nothing.

// gonePrefix begins the name of a directory of which only files are left to be removed. No id begins with a dot.
const gonePrefix = ".gone-"

// removing bounds how long a command waits for the remover of a sandbox: longer than a relay, control groups and a record
// together can take.
const removing = 10 * time.Second

// claimed is the size of a lock file whose sandbox is being removed. Changing a size needs no space on a full disk.
const claimed = 1

// removal is the right to remove a sandbox.
type removal struct {
	dir  *os.File // locked by the remover alone
	lock *os.File // locked by process 1, then by the remover
}

func (c *removal) release() {
	if c.dir != nil {
		c.dir.Close()
	}
	c.lock.Close()
}

// claim claims a sandbox that has ended. Without an error and without a claim the sandbox lives, or somebody else removes it, or
// it is gone. dir is the sandbox's directory where the caller has locked that already, else nil.
func (s *Store) claim(id string, dir *os.File) (*removal, error) {
	for {
		c, again, err := s.tryClaim(id, dir)
		if c != nil || err != nil || !again {
			return c, err
		}
		time.Sleep(time.Millisecond)
	}
}

// tryClaim holds the store's lock, or it could take a directory for dead that a creator has just made.
func (s *Store) tryClaim(id string, dir *os.File) (_ *removal, again bool, err error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	c := &removal{dir: dir}
	defer func() {
		if c != nil && dir == nil && c.dir != nil {
			c.dir.Close()
		}
	}()
	if dir == nil {
		if c.dir, err = s.root.Open(id); errors.Is(err, fs.ErrNotExist) {
			return nil, false, nil
		} else if err != nil {
			return nil, false, fmt.Errorf("lock sandbox %q: %w", id, err)
		}
		if flock.Lock(c.dir, unix.LOCK_EX|unix.LOCK_NB) != nil {
			return nil, false, nil
		}
	}
	// A creator that was killed at once has left no lock file.
	lock, err := s.root.OpenFile(filepath.Join(id, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("lock sandbox %q: %w", id, err)
	}
	if flock.Lock(lock, unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = lock.Truncate(claimed) // others then wait, or pass it over
		won := &removal{c.dir, lock}
		c = nil
		return won, false, nil
	}
	defer lock.Close()
	// Who only looks whether it is alive (see alive) is done in a moment.
	return nil, flock.Lock(lock, unix.LOCK_SH|unix.LOCK_NB) == nil, nil
}

// claimOrGone waits until a sandbox that has ended is claimed, or gone: then there is no claim. at is its directory.
func (s *Store) claimOrGone(id string, at fs.FileInfo, dir *os.File) (*removal, error) {
	for end := time.Now().Add(removing); ; time.Sleep(2 * time.Millisecond) {
		if s.gone(id, at) {
			return nil, nil
		}
		c, err := s.claim(id, dir)
		if c != nil || err != nil {
			return c, err
		}
		if time.Now().After(end) {
			return nil, fail(fault.SandboxUnavailable, "delete it from where it was made",
				"sandbox %q runs, but its process 1 cannot be found", id)
		}
	}
}

// gone reports whether a directory is no sandbox's any more. Another one may have its id by now.
func (s *Store) gone(id string, at fs.FileInfo) bool {
	now, err := s.root.Lstat(id)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, at)
}

// removedBefore is what a delete says whose sandbox somebody else has removed meanwhile: no more than was asked for, unless
// the record was to be signed.
func removedBefore(id string, key ed25519.PrivateKey) error {
	if key == nil {
		return nil
	}
	return fail(fault.RecordUnusable, "", "sign record: another command has removed sandbox %q", id)
}

// awaitEnd waits a moment for a process 1 that has ended to let go of its lock, which takes the kernel as long as to dissolve the
// mount namespace: who hears that a sandbox has ended may sweep, and expects that to find it.
func (s *Store) awaitEnd(id string) {
	for end := time.Now().Add(time.Second / 2); s.alive(id) && time.Now().Before(end); {
		time.Sleep(2 * time.Millisecond)
	}
}

// leaving reports whether somebody removes the sandbox that has this id.
func (s *Store) leaving(id string) bool {
	info, err := s.root.Lstat(filepath.Join(id, "lock"))
	return err == nil && info.Size() == claimed && !s.free(id)
}

// free reports whether nobody holds a sandbox's lock.
func (s *Store) free(id string) bool {
	f, err := s.root.OpenFile(filepath.Join(id, "lock"), os.O_RDWR, 0)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	return flock.Lock(f, unix.LOCK_SH|unix.LOCK_NB) == nil
}

// Sweep removes what dead sandboxes have left, and says which. It goes on where one cannot be removed; the error then has
// all such. It is safe beside running creates, deletes and other sweeps.
func (s *Store) Sweep() ([]string, error) {
	ids, err := s.dirs()
	if err != nil {
		return nil, err
	}
	var swept []string
	var troubles []error
	for _, id := range ids {
		removed, err := s.sweep(id)
		if removed {
			swept = append(swept, id)
		}
		if err != nil {
			troubles = append(troubles, err)
		}
	}
	for _, rest := range []func() error{s.emptyGone, func() error { return s.made().Sweep(validID) }} {
		if err := rest(); err != nil {
			troubles = append(troubles, err)
		}
	}
	return swept, errors.Join(troubles...)
}

// sweep removes one sandbox if it is dead.
func (s *Store) sweep(id string) (removed bool, err error) {
	if s.alive(id) {
		return false, nil
	}
	c, err := s.claim(id, nil)
	if c == nil {
		return false, err
	}
	err = s.remove(id, c, nil, "", nil)
	e, ok := errors.AsType[*Error](err)
	return err == nil || ok && e.Code == fault.RecordUnusable, err // where only its record could not be ended it is removed
}

// remove deletes a claimed sandbox's directory and cgroups, and gives the claim up. Its processes are gone. st is its state, nil
// if that is to be read. why goes into its record; empty: with its owner, or nobody knows. That the record could not be ended
// is an error, and keeps nothing here.
func (s *Store) remove(id string, c *removal, st *State, why string, key ed25519.PrivateKey) error {
	defer c.release()
	s.awaitLock(id, relayproc.Lock)() // it has connections to close and events to write
	if err := s.removeGroups(id); err != nil {
		return err
	}
	if err := s.made().RemoveEnded(id); err != nil {
		return err
	}
	unrecorded := s.endRecord(id, st, why, key)
	gone, err := s.rename(id)
	if err == nil {
		if err = s.removeAll(gone); err != nil {
			s.restore(gone, id)
		}
	}
	if err != nil {
		return fail(fault.StateUnusable, "", "remove sandbox %q: %w", id, err)
	}
	return unrecorded
}

// rename takes a sandbox's directory out of the list of sandboxes.
func (s *Store) rename(id string) (string, error) {
	unlock, err := s.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	gone := gonePrefix + id + "-" + rand.Text()
	if err := s.root.Rename(id, gone); err == nil {
		return gone, nil
	}
	return id, s.removeAll(id) // on a full disk a directory may not take a longer name
}

// restore lets what could not be removed be deleted again by its id.
func (s *Store) restore(gone, id string) {
	unlock, err := s.lock()
	if err != nil {
		return // a sweep will find it
	}
	defer unlock()
	if _, err := s.root.Lstat(id); errors.Is(err, fs.ErrNotExist) {
		_ = s.root.Rename(gone, id)
	}
}

func (s *Store) removeAll(name string) error {
	err := s.root.RemoveAll(name)
	for range 100 {
		if !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
		err = s.root.RemoveAll(name) // a launcher whose exec has just begun or ended made a last file
	}
	return err
}

// emptyGone removes what removers and pools have left that were killed.
func (s *Store) emptyGone() error {
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	var troubles []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), gonePrefix) || s.poolEnded(e.Name()) {
			if err := s.removeAll(e.Name()); err != nil {
				troubles = append(troubles, fmt.Errorf("remove %s: %w", e.Name(), err))
			}
		}
	}
	return errors.Join(troubles...)
}
