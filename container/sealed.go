package container

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/bundle"
	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// What commands believe of a sandbox is held by its process 1, in a sealed memfd. The state directory says only where process 1
// is, and keeps a copy for when that has ended. So a program that could write in the state directory, for whatever reason,
// cannot lead a command into another sandbox or out of one: a forged pid leads to a process that is not process 1 of this
// sandbox, and a copy that has been changed differs.

func (s *Store) changed(id, format string, args ...any) *Error {
	return fail(fault.StateChanged, "somebody who can write in the state directory did that; end the sandbox: sandboxrun delete "+id,
		"sandbox %q: %s", id, fmt.Sprintf(format, args...))
}

// initFile says which process is process 1, for launch.c: two numbers of 64 bits, its pid and start time.
const initFile = "init"

// writeInit writes initFile.
func (m *making) writeInit() error {
	where := binary.NativeEndian.AppendUint64(nil, uint64(m.state.PID))
	where = binary.NativeEndian.AppendUint64(where, m.state.StartTime)
	return bundle.WriteNew(m.root, initFile, string(where), 0o400)
}

// seal writes what commands are to believe, for process 1 to hold.
func (m *making) seal() (*os.File, error) {
	sb := m.Sandbox
	var err error
	if m.copied, err = json.Marshal(sb.state); err != nil {
		return nil, fmt.Errorf("save state: %w", err)
	}
	sealed := forkexec.Sealed{
		ID: sb.state.ID, Filter: forkexec.EncodeFilter(m.filter), State: m.copied,
		Policy: m.plan.PolicyPaths, Writable: sb.writable, Kept: sb.keptData,
	}
	if sb.state.Record != nil {
		sealed.Record = sb.state.Record.Dir
	}
	sb.filter = sealed.Filter
	if m.short != nil {
		sealed.Launch = m.short.Encode()
	}
	var f *os.File
	if sealed.StoreDev, sealed.StoreIno, err = sb.store.identity(); err == nil {
		f, err = sealed.File()
	}
	if err != nil {
		return nil, fail(fault.SandboxUnavailable, "", "create sandbox: keep its state: %w", err)
	}
	return f, nil
}

// identity is the number of the state directory.
func (s *Store) identity() (dev, ino uint64, err error) {
	dir, err := s.root.Open(".")
	if err != nil {
		return 0, 0, fault.Cause(err)
	}
	defer dir.Close()
	var st unix.Stat_t
	err = unix.Fstat(int(dir.Fd()), &st)
	return st.Dev, st.Ino, err
}

// readOwn reads a file of a sandbox's directory. It must be the caller's own, with one name, and writable by nobody else.
func (s *Store) readOwn(id, name string) ([]byte, error) {
	path := filepath.Join(id, name)
	f, err := s.root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		if info, lerr := s.root.Lstat(path); lerr == nil && info.Mode()&fs.ModeSymlink != 0 {
			err = s.changed(id, "%s is a symlink", name) // one that leads nowhere must not look like a sandbox that was never completed
		}
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Nlink > 1 || st.Mode&0o022 != 0 {
		return nil, s.changed(id, "%s must be a file of uid %d with one name, writable by nobody else; it has mode %#o, uid %d and %d names",
			name, os.Geteuid(), st.Mode, st.Uid, st.Nlink)
	}
	return io.ReadAll(io.LimitReader(f, forkexec.MaxSealed))
}

// believe takes the state from process 1, and compares the copy.
func (sb *Sandbox) believe(copied []byte) error {
	s, id := sb.store, sb.state.ID
	sealed, err := s.sealedBy(sb.proc)
	switch {
	case err == nil && sealed.ID != id:
		err = forkexec.ErrNotSealed
	case err != nil && (procfs.PidfdWait(sb.init, 0) || procfs.Exiting(sb.state.PID)):
		procfs.PidfdWait(sb.init, 2000) // until the lock is free too, which sweep looks at
		return errEnded
	case err == nil && !bytes.Equal(sealed.State, copied):
		return s.changed(id, "state.json is not what create has written")
	}
	if errors.Is(err, forkexec.ErrNotSealed) {
		return s.changed(id, "process %d is not its process 1", sb.state.PID)
	}
	if err != nil {
		return err
	}
	sb.filter, sb.keptData, sb.policyPaths = sealed.Filter, sealed.Kept, sealed.Policy
	return nil
}

// sealedBy reads what a process holds, if that is process 1 of a sandbox of this store.
func (s *Store) sealedBy(proc *os.File) (*forkexec.Sealed, error) {
	if ok, err := trust.OwnChild(fmt.Sprintf("/proc/self/fd/%d", proc.Fd())); diagnose.Scarce(err) != "" {
		return nil, err // that says nothing of the process
	} else if !ok {
		return nil, forkexec.ErrNotSealed
	}
	sealed, err := forkexec.ReadSealed(proc)
	if err != nil {
		return nil, err
	}
	dev, ino, err := s.identity()
	if err == nil && (sealed.StoreDev != dev || sealed.StoreIno != ino) {
		err = forkexec.ErrNotSealed
	}
	return sealed, err
}

// find looks for process 1 of a sandbox among all processes, where the state directory cannot be believed.
func (s *Store) find(id string) *Sandbox {
	var found *Sandbox
	trust.EachInit(func(name string) {
		pid, _ := strconv.Atoi(filepath.Base(name))
		if found != nil {
			return
		}
		start, err := procfs.StartTime(pid)
		if err != nil {
			return
		}
		sb := &Sandbox{store: s, state: &State{ID: id, PID: pid, StartTime: start}}
		if sb.attach() != nil {
			return
		}
		var st State
		sealed, err := s.sealedBy(sb.proc)
		if err != nil || sealed.ID != id || json.Unmarshal(sealed.State, &st) != nil {
			sb.Close()
			return
		}
		sb.state, sb.filter, found = &st, sealed.Filter, sb
	})
	return found
}
