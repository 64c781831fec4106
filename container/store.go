package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/flock"
	"github.com/sandboxrun/sandboxrun/fault"
)

// Error is a failure of ours, with a stable word for programs and a hint for people.
type Error = fault.Error

func fail(code, hint, format string, args ...any) *Error {
	return fault.New(code, hint, format, args...)
}

// Store is the directory that holds the state of one user's sandboxes, a directory each.
type Store struct {
	path string
	root *os.Root

	// Phase, if set, is called at the end of each part of making and removing a sandbox.
	Phase func(name string)
}

func (s *Store) phase(name string) {
	if s.Phase != nil {
		s.Phase(name)
	}
}

// OpenStore opens the state directory and makes it if it is not there, for the caller alone. It must be a real directory
// of the caller's own that nobody else can write: in /tmp somebody else may have made it first.
func OpenStore(path string) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open state directory: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("open state directory: %w", err)
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fail(fault.StateUnusable, "choose another with --root DIR", "make state directory: %w", err)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fail(fault.StateUnusable, "it must be a directory, not a link; choose another with --root DIR",
			"open state directory %q: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("open state directory %q: %w", path, err)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return nil, fail(fault.StateUnusable, "choose another with --root DIR, or chmod 700 it if it is yours",
			"state directory %q must belong to uid %d and be writable by nobody else; it belongs to uid %d and has mode %#o",
			path, os.Geteuid(), st.Uid, st.Mode&0o7777)
	}
	root, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return nil, fmt.Errorf("open state directory %q: %w", path, fault.Cause(err))
	}
	return &Store{path: path, root: root}, nil
}

// Close releases the store. Sandboxes live on.
func (s *Store) Close() { s.root.Close() }

// lock keeps creators and sweepers apart while they look at or change the list of sandboxes. It is held for
// microseconds, never while a sandbox is built.
func (s *Store) lock() (func(), error) {
	f, err := s.root.OpenFile(".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fail(fault.StateUnusable, fault.DiskHint, "lock state directory: %w", err)
	}
	if err := flock.Lock(f, unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	return func() { f.Close() }, nil
}

// awaitLock waits a moment for the processes that hold a lock in a sandbox's directory, and then holds it until release. If somebody has
// stopped such a process, it will find nothing to write to.
func (s *Store) awaitLock(id, name string) (release func()) {
	lock, err := s.root.Open(filepath.Join(id, name))
	if err != nil {
		return func() {} // nobody ever has held it
	}
	locked, late := make(chan struct{}), make(chan struct{})
	go func() {
		_ = flock.Lock(lock, unix.LOCK_EX)
		select {
		case locked <- struct{}{}:
		case <-late:
			lock.Close()
		}
	}()
	select {
	case <-locked:
		return func() { lock.Close() }
	case <-time.After(2 * time.Second):
		close(late)
		return func() {}
	}
}

const maxID = 128

// validID is written out: a regular expression would cost every start of the command a third of a millisecond.
func validID(id string) bool {
	if id == "" || len(id) > maxID || strings.IndexByte("_.-", id[0]) >= 0 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("_.-", c) < 0 {
			return false
		}
	}
	return true
}

// CheckID reports whether an id can name a sandbox: it must not be a path, an option or anything that needs quoting.
func CheckID(id string) error {
	if validID(id) {
		return nil
	}
	shown := id
	if len(shown) > 40 {
		shown = shown[:40] + "…"
	}
	return fail(fault.IDInvalid, "an id starts with a letter or digit and has up to 128 letters, digits, '_', '.' and '-'",
		"invalid sandbox id %q", shown)
}

// reserve makes the directory of a new sandbox. The returned file holds its lock, which says that it is in use for as
// long as any process has it open: first its creator, then its process 1. So a creator that dies leaves a directory
// that anybody can tell is dead, without a pid that may have been given to another process since. Where the last sandbox
// of that id is being removed it waits.
func (s *Store) reserve(id string) (*os.File, error) {
	for end := time.Now().Add(removing); ; time.Sleep(2 * time.Millisecond) {
		lock, err := s.tryReserve(id)
		if !errors.Is(err, fs.ErrExist) {
			return lock, err
		}
		if !s.leaving(id) || time.Now().After(end) {
			return nil, inUse(id)
		}
	}
}

func inUse(id string) error {
	return fail(fault.IDInUse, "choose another id, or end that one: sandboxrun delete "+id, "sandbox %q exists already", id)
}

func (s *Store) tryReserve(id string) (*os.File, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := s.root.Mkdir(id, 0o700); err != nil {
		return nil, fail(fault.StateUnusable, fault.DiskHint, "make sandbox directory: %w", err)
	}
	f, err := s.root.OpenFile(filepath.Join(id, "lock"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		err = flock.Lock(f, unix.LOCK_EX) // somebody may look at it just now, for a moment
	}
	if err != nil {
		_ = s.root.RemoveAll(id)
		return nil, fail(fault.StateUnusable, fault.DiskHint, "lock sandbox %q: %w", id, err)
	}
	return f, nil
}

// alive reports whether a sandbox's lock is held, and not by who removes it. A directory without a lock file is a leftover. What
// cannot be looked at, for want of a descriptor say, must not be taken for dead. The look shares the lock: two that look at
// the same moment do not take each other for the sandbox.
func (s *Store) alive(id string) bool {
	f, err := s.root.OpenFile(filepath.Join(id, "lock"), os.O_RDWR, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() == claimed {
		return false
	}
	return flock.Lock(f, unix.LOCK_SH|unix.LOCK_NB) != nil
}

// ids lists the sandboxes' directories, dead or alive.
func (s *Store) ids() ([]string, error) {
	ids, err := s.dirs()
	return slices.DeleteFunc(ids, func(id string) bool { return !validID(id) }), err
}

// dirs also lists those of sandboxes that have no id yet.
func (s *Store) dirs() ([]string, error) {
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && validID(strings.TrimPrefix(e.Name(), readyPrefix)) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}
