// Package forkexec starts one program in a sandbox that exists: it joins the sandbox's namespaces from outside, nests
// fresh ones in them, mounts, gives up every right and executes. It knows no policy. forkexec.c draws the processes.
package forkexec

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra
#cgo LDFLAGS: -Wl,--wrap=pthread_create -Wl,--wrap=nsexec
#include "forkexec.h"
*/
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mount is one mount(2) in the program's own mount namespace.
type Mount struct {
	Source, Target, Type, Data string
	Flags                      uintptr
}

// Cover in the flags of a Mount, has it made over the program's /proc when all else is done that needs it: then the program sees no
// procfs, and gets no descriptor of it either.
const Cover uintptr = C.FX_COVER

// Rlimit is one resource limit of the program.
type Rlimit struct {
	Resource int // unix.RLIMIT_*
	Cur, Max uint64
}

// Command is one exec: all that the children need, decided beforehand.
type Command struct {
	Target     *os.File // pidfd of the sandbox's process 1
	Namespaces int      // unix.CLONE_NEW* of the namespaces to join; the user namespace is always one
	DropGroups bool     // drop the caller's supplementary groups; needs CAP_SETGID
	Mounts     []Mount
	UID, GID   int // the program's numbers in the sandbox's user namespace
	ShownUID   int // and as it sees itself
	ShownGID   int
	Path       string // absolute, inside
	Args, Env  []string
	Dir        string
	Stdio      [3]*os.File
	Terminal   *Terminal // the program gets a new one instead of Stdio
	Umask      int
	Rlimits    []Rlimit
	CPUs       *unix.CPUSet // the only processors that it may use; nil: the caller's
	Limits     Limits
	Filter     []unix.SockFilter
	Execute    []string // the only files that it can execute, by absolute paths without symlinks; empty: all
	Once       bool     // the program can execute no other, nor again itself
	Asks       bool     // the filter asks: Process.Listener
	// Puts are written before the program is executed, with its rights.
	Puts []Put
	// Result is descriptor 3 of the program; nil: it has none.
	Result *os.File
	// Extra is what it sees besides what every exec of the sandbox sees, or does not see.
	Extra Extra
	// Guard is descriptor 5 of the program, the memory that it shares with its guard; nil: it has none.
	Guard *os.File
	// KeepView keeps the exec's view open: Process.View.
	KeepView bool
	// Cancel ends a start that takes long by a signal; may be nil.
	Cancel *Cancel
	// Leaving follows its supervisor to the end; nil: Process.Wait does.
	Leaving *Leaving
}

// Terminal is a pseudo-terminal that is made for the program in the exec's own devpts, which Mounts must bring.
type Terminal struct {
	Rows, Cols uint16
	Settings   *unix.Termios // nil: the kernel's own
}

// Cancel ends a start that blocks: Wait then says that the signal has ended the program.
type Cancel struct{ sig atomic.Int32 }

// By says by which signal the start is to be ended.
func (c *Cancel) By(sig unix.Signal) { c.sig.CompareAndSwap(0, int32(sig)) }

// ErrNotStarted is wrapped by every error of Start that means the program never ran.
var ErrNotStarted = errors.New("not started")

// StepError says at which step the start of an exec failed, and with what.
type StepError struct {
	Step   string
	Detail string // which mount or limit; may be empty
	Err    unix.Errno
}

// NumberedError is a start that failed when the exec had its number already: no other will have that.
type NumberedError struct {
	Exec string // "e000001"
	Err  error
}

// Error is the message of the cause.
func (e *NumberedError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *NumberedError) Unwrap() error { return e.Err }

// Error names the step and what it was done to.
func (e *StepError) Error() string {
	if e.Detail != "" {
		return fmt.Sprintf("%s %s: %v", e.Step, e.Detail, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Step, e.Err)
}

// Unwrap gives the system call's error.
func (e *StepError) Unwrap() error { return e.Err }

// Steps whose failure is the program's or the caller's, not ours.
const (
	StepExecve = "execute the program"
	StepDir    = "change to the working directory"
	StepRlimit = "set resource limit"
	StepUserns = "make the program's user namespace"
	StepMount  = "mount"
	StepFilter = "load the seccomp filter"

	StepExecution = "restrict what can be executed"

	StepTerminal = "open a terminal"
	StepPut      = "write a file for the program"
	StepShow     = "show the exec's own files"
	StepShown    = "check the exec's own files"
)

func stepName(step C.int) string {
	names := map[C.int]string{
		C.FX_SPAWN: "start a helper process", C.FX_GROUPS: "drop supplementary groups",
		C.FX_JOIN: "join the sandbox's namespaces", C.FX_BECOME: "become root in the sandbox's user namespace",
		C.FX_NAMESPACES: "make the exec's own namespaces", C.FX_MOUNT: StepMount, C.FX_IDS: "change to the program's user",
		C.FX_USERNS: StepUserns, C.FX_MAP: "map the program's user",
		C.FX_SESSION: "start a session", C.FX_TTY: "take the terminal", C.FX_EXECUTION: StepExecution, C.FX_TERMINAL: StepTerminal, C.FX_STDIO: "set up the standard streams",
		C.FX_RLIMIT: StepRlimit, C.FX_PRIVILEGE: "drop all privileges",
		C.FX_DIR: StepDir, C.FX_SECCOMP: StepFilter,
		C.FX_SHOW: StepShow, C.FX_LOOK: StepShown, C.FX_CLAIM: "hear from the pool",
		C.FX_PUT: StepPut, C.FX_VIEW: "open the exec's view",
		C.FX_EXECVE: StepExecve, C.FX_REAPER: "start the reaper",
		C.FX_CGROUP: "enter the exec's control group", C.FX_AFFINITY: "restrict the program to its processors",
	}
	return names[step]
}

// stacks are used only while Start runs. They are kept since clearing 64 KiB for every exec costs more than a clone.
var stacks = sync.Pool{New: func() any { return new([C.FX_STACKS]byte) }} //nolint:gochecknoglobals // a pool has to be one

// cmem lays out what the C side reads. The memory is Go's, pinned until the children have exec'd.
type cmem struct{ pin runtime.Pinner }

func (m *cmem) str(s string) *C.char {
	b := append([]byte(s), 0)
	m.pin.Pin(&b[0])
	return (*C.char)(unsafe.Pointer(&b[0]))
}

// opt is str, with nil for the empty string.
func (m *cmem) opt(s string) *C.char {
	if s == "" {
		return nil
	}
	return m.str(s)
}

func (m *cmem) strs(list []string) **C.char {
	out := make([]*C.char, len(list)+1)
	for i, s := range list {
		out[i] = m.str(s)
	}
	m.pin.Pin(&out[0])
	return &out[0]
}

func (m *cmem) mounts(list []Mount) *C.struct_fx_mount {
	if len(list) == 0 {
		return nil
	}
	out := make([]C.struct_fx_mount, len(list))
	for i, t := range list {
		out[i] = C.struct_fx_mount{
			source: m.opt(t.Source), target: m.str(t.Target), fstype: m.opt(t.Type),
			data: m.opt(t.Data), flags: C.ulong(t.Flags),
		}
	}
	m.pin.Pin(&out[0])
	return &out[0]
}

func (m *cmem) rlimits(list []Rlimit) *C.struct_fx_rlimit {
	if len(list) == 0 {
		return nil
	}
	out := make([]C.struct_fx_rlimit, len(list))
	for i, l := range list {
		out[i] = C.struct_fx_rlimit{resource: C.int(l.Resource), cur: C.uint64_t(l.Cur), max: C.uint64_t(l.Max)}
	}
	m.pin.Pin(&out[0])
	return &out[0]
}

func (m *cmem) filter(f []unix.SockFilter) C.struct_sock_fprog {
	if len(f) == 0 {
		return C.struct_sock_fprog{}
	}
	m.pin.Pin(&f[0])
	return C.struct_sock_fprog{len: C.ushort(len(f)), filter: (*C.struct_sock_filter)(unsafe.Pointer(&f[0]))}
}

func idMap(shown, real int) string { return fmt.Sprintf("%d %d 1", shown, real) }

// Start starts the program and returns when it has been executed, or could not be.
// An error that is a *StepError with StepExecve is the program's fault; any other is ours.
func Start(c *Command) (*Process, error) {
	stub, err := Stub()
	if err != nil {
		return nil, err
	}
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start exec: %w", err)
	}
	defer statusW.Close()
	var m cmem
	defer m.pin.Unpin()
	x, done := c.layout(&m)
	defer done()
	x.stub, x.status = C.int(stub.Fd()), C.int(statusW.Fd())
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		statusR.Close()
		return nil, fmt.Errorf("start exec: open own pidfd: %w", err)
	}
	defer unix.Close(self)
	x.waiter = C.int(self)
	lim, err := openLimits(&c.Limits)
	if err != nil {
		statusR.Close()
		return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	x.limits = lim.c
	C.fx_start(x)
	runtime.KeepAlive(c)
	p := &Process{
		gone: make(chan struct{}), Name: lim.name(), limits: lim, cancelled: unix.Signal(x.cancelled),
		Terminal: file(x.master, "terminal"), Listener: listenerFile(x.listener), status: statusR, reaper: file(x.reaper_pidfd, "pidfd"), program: file(x.program_pidfd, "pidfd"),
	}
	if x.step != C.FX_OK {
		viewOf(x).Close()
		p.abandon()
		if p.Listener != nil {
			p.Listener.Close()
		}
		if p.Terminal != nil {
			p.Terminal.Close()
		}
		return nil, &NumberedError{p.Name, fmt.Errorf("%w: %w", ErrNotStarted, c.stepError(x))}
	}
	p.View = viewOf(x)
	if !c.holdsFiles() {
		p.leaving = c.Leaving
	}
	lim.started(c.Limits.Waits)
	p.supervise()
	return p, nil
}

func (c *Command) layout(m *cmem) (*C.struct_fx_exec, func()) {
	stack := stacks.Get().(*[C.FX_STACKS]byte)
	m.pin.Pin(stack)
	x := &C.struct_fx_exec{
		target: C.int(c.Target.Fd()), namespaces: C.int(c.Namespaces | unix.CLONE_NEWUSER),
		mounts: m.mounts(c.Mounts), n_mounts: C.size_t(len(c.Mounts)),
		uid: C.int(c.UID), gid: C.int(c.GID),
		uid_map: m.str(idMap(c.ShownUID, c.UID)), gid_map: m.str(idMap(c.ShownGID, c.GID)),
		path: m.str(c.Path), argv: m.strs(c.Args), envp: m.strs(c.Env), dir: m.str(c.Dir),
		umask: C.uint(c.Umask), rlimits: m.rlimits(c.Rlimits), n_rlimits: C.size_t(len(c.Rlimits)),
		filter: m.filter(c.Filter), stacks: (*C.char)(unsafe.Pointer(stack)), signals: -1,
		puts: m.puts(c.Puts), n_puts: C.size_t(len(c.Puts)), keep_view: C.int(number(c.KeepView)),
	}
	c.Extra.layout(m, x)
	if c.Result != nil {
		x.result = C.int(c.Result.Fd())
	}
	if c.Guard != nil {
		x.guard = C.int(c.Guard.Fd())
	}
	for i, f := range c.Stdio {
		if f != nil {
			x.stdio[i] = C.int(f.Fd())
		}
	}
	x.asks = C.int(number(c.Asks && len(c.Filter) > 0))
	x.drop_groups, x.once = C.int(number(c.DropGroups)), C.int(number(c.Once))
	if len(c.Execute) > 0 {
		x.execute, x.n_execute = m.strs(c.Execute), C.size_t(len(c.Execute))
	}
	if t := c.Terminal; t != nil {
		x.tty, x.rows, x.cols = 1, C.ushort(t.Rows), C.ushort(t.Cols)
		if t.Settings != nil {
			m.pin.Pin(t.Settings)
			x.termios = unsafe.Pointer(t.Settings)
		}
	}
	if c.Cancel != nil {
		m.pin.Pin(c.Cancel)
		x.cancel = (*C.int32_t)(unsafe.Pointer(c.Cancel)) // the number is all that is in it
	}
	if c.CPUs != nil {
		m.pin.Pin(c.CPUs)
		x.cpus = (*C.ulong)(unsafe.Pointer(c.CPUs))
	}
	m.pin.Pin(x)
	return x, func() { stacks.Put(stack) }
}

func (c *Command) stepError(x *C.struct_fx_exec) *StepError {
	e := &StepError{Step: stepName(x.step), Err: unix.Errno(x.err)}
	i := int(x.index)
	switch {
	case x.step == C.FX_MOUNT && i < len(c.Mounts):
		e.Detail = fmt.Sprintf("%q on %q", c.Mounts[i].Source, c.Mounts[i].Target)
	case x.step == C.FX_RLIMIT && i < len(c.Rlimits):
		e.Detail = RlimitName(c.Rlimits[i].Resource)
	case x.step == C.FX_EXECVE:
		e.Detail = fmt.Sprintf("%q", c.Path)
	case x.step == C.FX_EXECUTION && i < len(c.Execute):
		e.Detail = fmt.Sprintf("to %q", c.Execute[i])
	case x.step == C.FX_PUT && i < len(c.Puts):
		e.Detail = fmt.Sprintf("%q", path.Join(c.Puts[i].Parent, c.Puts[i].Name))
	case x.step == C.FX_SHOW && i < len(c.Extra.Steps):
		e.Detail = fmt.Sprintf("%q", c.Extra.Steps[i].Target)
	case x.step == C.FX_LOOK && i < len(c.Extra.Checks):
		e.Detail = fmt.Sprintf("%q", c.Extra.Checks[i].Path)
	case x.step == C.FX_DIR:
		e.Detail = fmt.Sprintf("%q", c.Dir)
	}
	return e
}

// CoreLimit is the limit that keeps the host's core handler from a program.
const CoreLimit = "RLIMIT_CORE"

// RlimitName is what a resource limit is called, such as "RLIMIT_NOFILE".
func RlimitName(resource int) string {
	names := map[int]string{
		unix.RLIMIT_CPU: "RLIMIT_CPU", unix.RLIMIT_FSIZE: "RLIMIT_FSIZE", unix.RLIMIT_NOFILE: "RLIMIT_NOFILE",
		unix.RLIMIT_NPROC: "RLIMIT_NPROC", unix.RLIMIT_CORE: CoreLimit,
	}
	return cmp.Or(names[resource], fmt.Sprint(resource))
}

// listenerFile is a file whose readers do not take a thread each.
func listenerFile(fd C.int) *os.File {
	if fd < 0 {
		return nil
	}
	_ = unix.SetNonblock(int(fd), true)
	return file(fd, "seccomp")
}

// file is a descriptor that a start has made; nil if it has not.
func file(fd C.int, name string) *os.File {
	if fd < 0 {
		return nil
	}
	return os.NewFile(uintptr(fd), name)
}
