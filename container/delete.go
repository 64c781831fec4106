package container

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/cgroup"
	"github.com/sandboxrun/sandboxrun/container/flock"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/record"
)

// Delete ends every process of a sandbox and removes everything that it had. A sandbox that has died already is
// removed just so. Its record is signed with the key, unless that is nil.
func (s *Store) Delete(id string, key ed25519.PrivateKey) error {
	if err := CheckID(id); err != nil {
		return err
	}
	sb, err := s.Open(id)
	var e *Error
	switch {
	case err == nil:
		return sb.Delete(key)
	case errors.As(err, &e) && e.Code == fault.SandboxLost:
		return s.removeDead(id, key)
	case errors.As(err, &e) && e.Code == fault.StateChanged:
		if sb := s.find(id); sb != nil {
			return sb.Delete(key)
		}
		return s.removeDead(id, key)
	case errors.As(err, &e) && e.Code == fault.NotFound:
		if sb := s.find(id); sb != nil { // somebody has removed its directory
			defer sb.Close()
			sb.end()
			return nil
		}
	}
	return err
}

// removeDead removes what a sandbox has left whose process 1 cannot be found. Its lock says whether that has ended: it
// may be held for a moment longer. Where it stays held process 1 lives, but cannot be seen from here, as from another
// PID namespace, and must not be forgotten. What somebody else has removed meanwhile is removed.
func (s *Store) removeDead(id string, key ed25519.PrivateKey) error {
	at, err := s.root.Lstat(id)
	if err != nil {
		return removedBefore(id, key)
	}
	s.awaitEnd(id)
	if s.alive(id) {
		if sb := s.find(id); sb != nil { // the state directory named another process
			return sb.Delete(key)
		}
	}
	c, err := s.claimOrGone(id, at, nil)
	if err != nil {
		return err
	}
	if c == nil {
		return removedBefore(id, key)
	}
	return s.remove(id, c, nil, "", key)
}

// Delete ends the sandbox and releases the handle. Its record is signed with the key, unless that is nil.
func (sb *Sandbox) Delete(key ed25519.PrivateKey) error {
	defer sb.Close()
	sb.warm.Load().Close()
	sb.leaving.Wait() // they still use the sandbox's directory and control groups, which go with it
	s, id := sb.store, sb.state.ID
	at, err := s.root.Lstat(id)
	if sb.dir != nil {
		at, err = sb.dir.Stat()
	}
	if err != nil {
		return fmt.Errorf("delete sandbox %q: %w", id, err)
	}
	// No sweep is to remove it as soon as process 1 has ended, without the key and as one that nobody has deleted.
	mine := sb.dir != nil && flock.Lock(sb.dir, unix.LOCK_EX|unix.LOCK_NB) == nil
	_, release := procfs.KeepUTS(sb.proc) // so that the end of the record finds no process of another sandbox
	defer release()
	sb.end()
	s.phase("end of process 1")
	s.detached(id).AwaitMonitors()
	var dir *os.File
	if mine {
		dir, sb.dir = sb.dir, nil // the claim's to close
	}
	c, err := s.claimOrGone(id, at, dir)
	if c == nil && dir != nil {
		dir.Close()
	}
	if err != nil {
		return err
	}
	if c == nil {
		return removedBefore(id, key)
	}
	defer s.phase("removal")
	return s.remove(id, c, sb.state, record.Deleted, key)
}

// KillInit has the kernel end process 1, and with it everything inside. It does not wait for that.
func (sb *Sandbox) KillInit() {
	_ = unix.PidfdSendSignal(int(sb.init.Fd()), unix.SIGKILL, nil, 0) // it may have ended
}

// end kills process 1. The kernel kills everything else in its PID namespace, and the nested ones, before that is gone. It is not gone
// either before the launcher of each exec has waited for that, and the launcher may have been stopped (Ctrl-Z): then it is enough that
// no process is left.
func (sb *Sandbox) end() {
	const stuck = 300 // milliseconds
	if sb.init == nil {
		return
	}
	uts, release := procfs.KeepUTS(sb.proc)
	defer release()
	sb.KillInit()
	for !procfs.PidfdWait(sb.init, stuck) {
		if left, err := procfs.InUTS(uts); err == nil && uts != "" && len(left) == 0 {
			return
		}
	}
	if sb.child {
		_ = unix.Waitid(unix.P_PIDFD, int(sb.init.Fd()), nil, unix.WEXITED, nil)
	}
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
		err = cgroup.RemoveNoted(strings.FieldsFunc(string(data), func(c rune) bool { return c == '\n' }))
	}
	if err != nil {
		return fmt.Errorf("remove control groups of sandbox %q: %w", id, err)
	}
	return nil
}

// groupsFile names the control groups that were made for a sandbox, one a line, before each was made: so what a creator
// that died has made can be found.
const groupsFile = "cgroups"
