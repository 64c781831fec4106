package container

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/record"
)

// Delete ends every process of a sandbox and removes everything that it had. A sandbox that has died already is
// removed just so.
func (s *Store) Delete(id string) error { return s.DeleteSigned(id, nil) }

// DeleteSigned is Delete, and signs the sandbox's record with a key that is not nil.
func (s *Store) DeleteSigned(id string, key ed25519.PrivateKey) error {
	if err := CheckID(id); err != nil {
		return err
	}
	sb, err := s.Open(id)
	var e *Error
	switch {
	case err == nil:
		return sb.DeleteSigned(key)
	case errors.As(err, &e) && e.Code == "sandbox_lost":
		return s.removeDead(id, key)
	case errors.As(err, &e) && e.Code == CodeChanged:
		if sb := s.find(id); sb != nil {
			return sb.DeleteSigned(key)
		}
		return s.removeDead(id, key)
	}
	return err
}

// removeDead removes what a sandbox has left whose process 1 cannot be found. Its lock says whether that has ended: it
// may be held for a moment longer. Where it stays held process 1 lives, but cannot be seen from here, as from another
// PID namespace, and must not be forgotten.
func (s *Store) removeDead(id string, key ed25519.PrivateKey) error {
	for range 100 {
		if !s.alive(id) {
			return s.remove(id, nil, "", key)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if sb := s.find(id); sb != nil { // the state directory named another
		return sb.DeleteSigned(key)
	}
	return fail("sandbox_unavailable", "delete it from where it was made", "sandbox %q runs, but its process 1 cannot be found", id)
}

// Delete ends the sandbox and releases the handle.
func (sb *Sandbox) Delete() error { return sb.DeleteSigned(nil) }

// DeleteSigned is Delete, and signs the record with a key that is not nil.
func (sb *Sandbox) DeleteSigned(key ed25519.PrivateKey) error {
	defer sb.Close()
	sb.end()
	sb.store.awaitMonitors(sb.state.ID)
	return sb.store.remove(sb.state.ID, sb.state, record.Deleted, key)
}

// end kills process 1. The kernel kills everything else in its PID namespace, and the nested ones, before that is gone.
func (sb *Sandbox) end() {
	if sb.init == nil {
		return
	}
	_ = unix.PidfdSendSignal(int(sb.init.Fd()), unix.SIGKILL, nil, 0) // it may have ended
	pidfdWait(sb.init, -1)
	if sb.child {
		_ = unix.Waitid(unix.P_PIDFD, int(sb.init.Fd()), nil, unix.WEXITED, nil)
	}
}

// discard removes what a failed create has made.
func (sb *Sandbox) discard() {
	sb.end()
	sb.Close()
	_ = sb.store.remove(sb.state.ID, sb.state, record.Lost, nil)
}

// cgroupName names a sandbox's cgroups. Two stores may each have a sandbox of one id.
func cgroupName(store, id string) string {
	h := fnv.New32a()
	h.Write([]byte(store))
	return fmt.Sprintf("sandboxrun-%08x-%s", h.Sum32(), id)
}

// removeGroups removes the control groups that were made for a sandbox. Nothing is in them any more.
func (s *Store) removeGroups(id string) error {
	data, err := s.root.ReadFile(filepath.Join(id, groupsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = removeNoted(strings.FieldsFunc(string(data), func(c rune) bool { return c == '\n' }))
	}
	if err != nil {
		return fmt.Errorf("remove control groups of sandbox %q: %w", id, err)
	}
	return nil
}
