package container

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Error is a failure of ours, with a stable word for programs and a hint for people.
type Error struct {
	Code string // such as "id_in_use"
	Hint string // may be empty
	Err  error
	// Where a program of a sandbox was not started: the sandbox, the exec that it would have been, and whether the sandbox
	// is isolated. Else empty.
	Sandbox, Exec string
	Isolated      bool

	found *diagnosis // of a machine that cannot make sandboxes
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// fullDisk says whether writing the state has failed for want of room. To calls that write no file ENOSPC means something
// else.
func fullDisk(err error) bool {
	var pe *os.PathError
	return errors.As(err, &pe) && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT))
}

// diskHint is for errors of writing the state.
const diskHint = "is the disk full? another place: --root DIR"

func fail(code, hint, format string, args ...any) *Error {
	return &Error{Code: code, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// Store is the directory that holds the state of one user's sandboxes, a directory each.
type Store struct {
	path string
	root *os.Root
}

// StorePath is where the state is: dir if it is given, else a place that belongs to the caller alone.
func StorePath(dir, runtimeDir string, uid int) string {
	switch {
	case dir != "":
		return dir
	case uid == 0 && unix.Access("/run", unix.W_OK) == nil: // not so for the root of a user namespace of somebody's
		return "/run/sandboxrun"
	case ownedDir(runtimeDir, uid):
		return filepath.Join(runtimeDir, "sandboxrun")
	}
	return "/tmp/sandboxrun-" + strconv.Itoa(uid)
}

// ownedDir keeps a runtime directory out that sudo or su left behind from somebody else.
func ownedDir(path string, uid int) bool {
	var st unix.Stat_t
	return path != "" && unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == uid
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
		return nil, fail("state_unusable", "choose another with --root DIR", "make state directory: %w", err)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fail("state_unusable", "it must be a directory, not a link; choose another with --root DIR",
			"open state directory %q: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("open state directory %q: %w", path, err)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return nil, fail("state_unusable", "choose another with --root DIR, or chmod 700 it if it is yours",
			"state directory %q must belong to uid %d and be writable by nobody else; it belongs to uid %d and has mode %#o",
			path, os.Geteuid(), st.Uid, st.Mode&0o7777)
	}
	root, err := os.OpenRoot("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return nil, fmt.Errorf("open state directory %q: %w", path, cause(err))
	}
	return &Store{path: path, root: root}, nil
}

// Close releases the store. Sandboxes live on.
func (s *Store) Close() { s.root.Close() }

// lock keeps creators and sweepers apart while they look at or change the list of sandboxes. It is held for
// microseconds, never while a sandbox is built.
func (s *Store) lock() (func(), error) {
	f, err := s.root.OpenFile(".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if fullDisk(err) {
		return nil, fail("state_unusable", diskHint, "lock state directory: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	if err := flock(f, unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	return func() { f.Close() }, nil
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// awaitLock waits a moment for whoever holds a lock in a sandbox's directory. Somebody may have stopped them: they will find
// nothing to write to.
func (s *Store) awaitLock(id, name string) {
	lock, err := s.root.Open(filepath.Join(id, name))
	if err != nil {
		return // nobody ever has
	}
	free := make(chan struct{})
	go func() {
		defer close(free)
		defer lock.Close()
		_ = flock(lock, unix.LOCK_EX)
	}()
	select {
	case <-free:
	case <-time.After(2 * time.Second):
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

// CheckID says whether an id can name a sandbox: it must not be a path, an option or anything that needs quoting.
func CheckID(id string) error {
	if validID(id) {
		return nil
	}
	shown := id
	if len(shown) > 40 {
		shown = shown[:40] + "…"
	}
	return fail("id_invalid", "an id starts with a letter or digit and has up to 128 letters, digits, '_', '.' and '-'",
		"invalid sandbox id %q", shown)
}

// reserve makes the directory of a new sandbox. The returned file holds its lock, which says that it is in use for as
// long as any process has it open: first its creator, then its process 1. So a creator that dies leaves a directory
// that anybody can tell is dead, without a pid that may have been given to another process since.
func (s *Store) reserve(id string) (*os.File, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := s.root.Mkdir(id, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, fail("id_in_use", "choose another id, or end that one: sandboxrun delete "+id,
				"sandbox %q exists already", id)
		}
		return nil, fail("state_unusable", diskHint, "make sandbox directory: %w", err)
	}
	f, err := s.root.OpenFile(filepath.Join(id, "lock"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		_ = s.root.RemoveAll(id)
		return nil, fail("state_unusable", diskHint, "lock sandbox %q: %w", id, err)
	}
	return f, nil
}

// alive says whether a sandbox's lock is held. A directory without a lock file is a leftover. What cannot be looked at,
// for want of a descriptor say, must not be taken for dead.
func (s *Store) alive(id string) bool {
	f, err := s.root.OpenFile(filepath.Join(id, "lock"), os.O_RDWR, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	return flock(f, unix.LOCK_EX|unix.LOCK_NB) != nil
}

// ids lists the sandboxes' directories, dead or alive.
func (s *Store) ids() ([]string, error) {
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && validID(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// Sweep removes what dead sandboxes have left, and says which. It is safe beside running creates and deletes.
func (s *Store) Sweep() ([]string, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	ids, err := s.ids()
	if err != nil {
		return nil, err
	}
	var swept []string
	var untold error
	for _, id := range ids {
		if s.alive(id) {
			continue
		}
		err := s.remove(id, nil, "", nil)
		if e, ok := errors.AsType[*Error](err); ok && e.Code == CodeRecord {
			untold, err = errors.Join(untold, err), nil // it is removed all the same
		}
		if err != nil {
			return swept, err
		}
		swept = append(swept, id)
	}
	return swept, untold
}

// remove deletes a sandbox's directory and cgroups. Its processes are gone. st is its state, nil if that is to be read. why is
// told to its record; empty: with its owner, or nobody knows. That the record could not be ended is an error, and keeps nothing here.
func (s *Store) remove(id string, st *State, why string, key ed25519.PrivateKey) error {
	s.awaitLock(id, relayLock) // it has connections to close and events to write
	if err := s.removeGroups(id); err != nil {
		return err
	}
	unrecorded := s.endRecord(id, st, why, key)
	err := s.root.RemoveAll(id)
	for range 100 {
		if !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
		err = s.root.RemoveAll(id) // a launcher whose exec has just begun or ended made a last file
	}
	if err != nil {
		return fail("state_unusable", "", "remove sandbox %q: %w", id, err)
	}
	return unrecorded
}
