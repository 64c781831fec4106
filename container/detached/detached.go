package detached

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
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// LogMax is how many bytes of each stream a detached exec keeps for logs.
const LogMax = 64 << 20

// Files of a detached exec, in ID/exec/NAME. As with a sandbox it is the lock that says who is alive: its monitor holds
// it for as long as it lives. Where nobody does and there is no result, the exec was lost with its monitor.
const (
	ExecsDir   = "exec"
	execLock   = "lock"
	execResult = "result.json" // written whole or not at all
	execPidns  = "pidns"       // the number of the exec's PID namespace
	newResult  = execResult + ".new"
)

// Execs are the detached execs of a sandbox.
type Execs struct {
	Root   *os.Root // the directory of all sandboxes
	ID     string
	Alive  func() bool  // whether the sandbox lives
	Output func() int64 // how many bytes of each stream a result has
}

// Exec is one that goes on, or has gone on, without the command that started it.
type Exec struct {
	Sandbox string
	Name    string

	of   Execs
	dir  *os.Root
	lock *os.File
}

// ValidExec reports whether a name can be that of an exec. It is a part of a path.
func ValidExec(name string) bool {
	digits, ok := strings.CutPrefix(name, "e")
	return ok && len(digits) >= 6 && len(digits) <= 20 && strings.Trim(digits, "0123456789") == ""
}

// Find finds a detached exec, which may have ended; an empty name is the latest.
func (s Execs) Find(name string) (*Exec, error) {
	hint := "only an exec that was started with --detach can be named"
	if name == "" {
		names := s.names()
		if len(names) == 0 {
			return nil, fault.New(fault.ExecNotFound, hint, "sandbox %q has no detached exec", s.ID)
		}
		name = names[len(names)-1]
	}
	if ValidExec(name) {
		if d := s.open(name); d != nil {
			return d, nil
		}
	}
	return nil, fault.New(fault.ExecNotFound, hint, "sandbox %q has no detached exec %q", s.ID, name)
}

func (s Execs) open(name string) *Exec {
	dir, err := s.Root.OpenRoot(filepath.Join(s.ID, ExecsDir, name))
	if err != nil {
		return nil
	}
	lock, err := dir.OpenFile(execLock, os.O_RDWR, 0)
	if err != nil {
		dir.Close()
		return nil
	}
	return &Exec{Sandbox: s.ID, Name: name, of: s, dir: dir, lock: lock}
}

// names lists them, the oldest first.
func (s Execs) names() []string {
	entries, err := fs.ReadDir(s.Root.FS(), filepath.Join(s.ID, ExecsDir))
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if ValidExec(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return names
}

// eachRunning calls for each one that runs.
func (s Execs) eachRunning(call func(*Exec)) {
	for _, name := range s.names() {
		d := s.open(name)
		if d == nil {
			continue
		}
		if d.Running() {
			call(d)
		}
		d.Close()
	}
}

// Namespaces gives the PID namespaces of those that run, with their names.
func (s Execs) Namespaces() map[uint64]string {
	list := map[uint64]string{}
	s.eachRunning(func(d *Exec) {
		data, _ := d.dir.ReadFile(execPidns)
		n, _ := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
		list[n] = d.Name
	})
	return list
}

// Count returns how many run.
func (s Execs) Count() int {
	n := 0
	s.eachRunning(func(*Exec) { n++ })
	return n
}

// Close releases the handle. The exec goes on.
func (d *Exec) Close() {
	d.dir.Close()
	d.lock.Close()
}

// Running reports whether the exec goes on. A reader takes a shared lock, so that two readers do not take each other for the monitor.
func (d *Exec) Running() bool {
	return errors.Is(flock.Lock(d.lock, unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Ended is closed when the exec has ended. A thread waits for that as long as it takes.
func (d *Exec) Ended() <-chan struct{} {
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
func (d *Exec) Wait(most time.Duration) bool {
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
func (d *Exec) Result() (*result.Result, error) {
	running := d.Running()
	res, err := d.saved()
	if res != nil || err != nil {
		return res, err
	}
	res = &result.Result{Sandbox: d.Sandbox, Exec: d.Name, Outcome: result.StillRunning, ExitCode: fault.ExitLauncher}
	if !running {
		res.Ended(forkexec.Status{Lost: true})
		if d.of.Alive() {
			res.Error.Message = "the exec's monitor was ended, and its program with it"
		}
	}
	d.fill(res)
	return res, nil
}

// saved is the result that the monitor has kept, or nil.
func (d *Exec) saved() (*result.Result, error) {
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
func (d *Exec) fill(res *result.Result) {
	limit := d.of.Output()
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

// AwaitMonitors waits a moment for the monitors of a sandbox that has ended: they have an exec to release.
func (s Execs) AwaitMonitors() {
	over := time.After(2 * time.Second)
	for _, name := range s.names() {
		d := s.open(name)
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
