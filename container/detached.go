package container

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/flock"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/container/stream"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// DetachedMax is how many bytes of each stream a detached exec keeps for logs.
const DetachedMax = 64 << 20

// Files of a detached exec, in ID/exec/NAME. As with a sandbox it is the lock that says who is alive: its monitor holds
// it for as long as it lives. Where nobody does and there is no result, the exec was lost with its monitor.
const (
	execsDir   = "exec"
	execLock   = "lock"
	execResult = "result.json" // written whole or not at all
	execPidns  = "pidns"       // the number of the exec's PID namespace
	newResult  = execResult + ".new"
)

// Detached is an exec that goes on, or has gone on, without the command that started it.
type Detached struct {
	Sandbox string
	Name    string

	store *Store
	dir   *os.Root
	lock  *os.File
}

// validExec says whether a name can be that of an exec. It is a part of a path.
func validExec(name string) bool {
	digits, ok := strings.CutPrefix(name, "e")
	return ok && len(digits) >= 6 && len(digits) <= 20 && strings.Trim(digits, "0123456789") == ""
}

// Detached finds a detached exec of a sandbox, which may have ended; an empty name is the latest.
func (s *Store) Detached(id, name string) (*Detached, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	if _, err := s.root.Lstat(id); err != nil {
		return nil, s.noState(id)
	}
	hint := "only an exec that was started with --detach can be named"
	if name == "" {
		names := s.detachedNames(id)
		if len(names) == 0 {
			return nil, fail("exec_not_found", hint, "sandbox %q has no detached exec", id)
		}
		name = names[len(names)-1]
	}
	if validExec(name) {
		if d := s.openDetached(id, name); d != nil {
			return d, nil
		}
	}
	return nil, fail("exec_not_found", hint, "sandbox %q has no detached exec %q", id, name)
}

func (s *Store) openDetached(id, name string) *Detached {
	dir, err := s.root.OpenRoot(filepath.Join(id, execsDir, name))
	if err != nil {
		return nil
	}
	lock, err := dir.OpenFile(execLock, os.O_RDWR, 0)
	if err != nil {
		dir.Close()
		return nil
	}
	return &Detached{Sandbox: id, Name: name, store: s, dir: dir, lock: lock}
}

// detachedNames lists the detached execs of a sandbox, the oldest first.
func (s *Store) detachedNames(id string) []string {
	entries, err := fs.ReadDir(s.root.FS(), filepath.Join(id, execsDir))
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if validExec(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return names
}

// eachRunning calls for each detached exec of a sandbox that runs.
func (s *Store) eachRunning(id string, call func(*Detached)) {
	for _, name := range s.detachedNames(id) {
		d := s.openDetached(id, name)
		if d == nil {
			continue
		}
		if d.Running() {
			call(d)
		}
		d.Close()
	}
}

// runningDetached gives the PID namespaces of those, with their names.
func (s *Store) runningDetached(id string) map[uint64]string {
	running := map[uint64]string{}
	s.eachRunning(id, func(d *Detached) {
		data, _ := d.dir.ReadFile(execPidns)
		n, _ := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
		running[n] = d.Name
	})
	return running
}

func (s *Store) countDetached(id string) int {
	n := 0
	s.eachRunning(id, func(*Detached) { n++ })
	return n
}

// Close releases the handle. The exec goes on.
func (d *Detached) Close() {
	d.dir.Close()
	d.lock.Close()
}

// Running says whether the exec goes on. Whoever looks takes a shared lock, so that no two who look see each other.
func (d *Detached) Running() bool {
	return errors.Is(flock.Lock(d.lock, unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Ended is closed when the exec has ended. A thread waits for that as long as it takes.
func (d *Detached) Ended() <-chan struct{} {
	ended := make(chan struct{})
	fd, err := unix.FcntlInt(d.lock.Fd(), unix.F_DUPFD_CLOEXEC, 0) // this handle may be closed before
	if err != nil {
		close(ended)
		return ended
	}
	go func() {
		defer close(ended)
		lock := os.NewFile(uintptr(fd), execLock)
		defer lock.Close()
		_ = flock.Lock(lock, unix.LOCK_SH)
	}()
	return ended
}

// Wait waits until the exec has ended, for so long at most if d is above 0, and says whether it has.
func (d *Detached) Wait(most time.Duration) bool {
	var over <-chan time.Time
	if most > 0 {
		over = time.After(most)
	}
	select {
	case <-d.Ended():
		return true
	case <-over:
		return false
	}
}

// Result is how an exec that has ended has done so. Of one that was lost with its monitor or its sandbox only the output
// is known, and of one that runs the output so far.
func (d *Detached) Result() (*result.Result, error) {
	running := d.Running()
	res, err := d.saved()
	if res != nil || err != nil {
		return res, err
	}
	res = &result.Result{Sandbox: d.Sandbox, Exec: d.Name, Outcome: result.StillRunning, ExitCode: result.ExitLauncher}
	if !running {
		res.Ended(forkexec.Status{Lost: true})
		if d.store.alive(d.Sandbox) {
			res.Error.Message = "the exec's monitor was ended, and its program with it"
		}
	}
	d.fill(res)
	return res, nil
}

// saved is the result that the monitor has kept, or nil.
func (d *Detached) saved() (*result.Result, error) {
	data, err := d.dir.ReadFile(execResult)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	res := &result.Result{}
	if err == nil {
		err = json.Unmarshal(data, res)
	}
	if err != nil {
		return nil, fmt.Errorf("read result of exec %q: %w", d.Name, err)
	}
	return res, nil
}

// fill fills in the output that there is.
func (d *Detached) fill(res *result.Result) {
	limit := int64(stream.DefaultOutput)
	if st, err := d.store.load(d.Sandbox); err == nil && st.Launch.Limits.Output > 0 {
		limit = st.Launch.Limits.Output
	}
	var kept [2]*stream.Keeper
	for i, name := range stream.Names() {
		kept[i] = stream.NewKeeper(limit)
		if f, err := d.dir.Open(name); err == nil {
			_, _ = io.Copy(kept[i], f)
			f.Close()
		}
	}
	res.Keep(kept[0], kept[1])
}

// awaitMonitors waits a moment for the monitors of a sandbox that has ended: they have an exec to release.
func (s *Store) awaitMonitors(id string) {
	over := time.After(2 * time.Second)
	for _, name := range s.detachedNames(id) {
		d := s.openDetached(id, name)
		if d == nil {
			continue
		}
		select {
		case <-d.Ended():
		case <-over: // somebody has stopped it; it will find nothing to write to
		}
		d.Close()
	}
}
