package forkexec

/*
#include <stdlib.h>
#include "forkexec.h"
*/
import "C"

import (
	"cmp"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Controllers of control groups, of which a Group has some.
const (
	GroupMemory  = C.FX_MEMORY
	GroupPids    = C.FX_PIDS
	GroupCPU     = C.FX_CPU
	GroupCPUAcct = C.FX_CPUACCT
)

// Group is a control group of the sandbox's own, below which each exec gets one.
type Group struct {
	Dir         string `json:"dir"`
	Unified     bool   `json:"unified,omitempty"` // version 2
	Controllers int    `json:"controllers"`       // Group* that limit or count something here

	// What is done for one exec. It is planned for each and not kept; container/cgroup has the names of the files.

	Own      bool              `json:"-"` // the exec gets a group of its own below Dir
	Join     string            `json:"-"` // version 1: the file into which a thread writes itself
	Shared   string            `json:"-"` // the file of Dir that limits the processes of all execs together; "": it limits none
	Writes   []Write           `json:"-"` // the limits of the exec's group
	Counters [Counters]Counter `json:"-"`
}

// Write is a limit of a group. It is read back.
type Write struct {
	File     string
	Value    int64
	Optional bool // not every kernel has the file
}

// Counter is where a group counts something: the number that follows Word at the start of a line of File, or the first one without
// Word, divided by Divisor. No File: the group does not count it.
type Counter struct {
	File, Word string
	Divisor    int64
}

// What an exec's groups count.
const (
	CountCPU         = C.FX_COUNT_CPU // processor time in microseconds
	CountAnon        = C.FX_COUNT_ANON
	CountShmem       = C.FX_COUNT_SHMEM
	CountOOMKills    = C.FX_COUNT_OOM_KILLS
	CountPidsRefused = C.FX_COUNT_PIDS_REFUSED
	Counters         = C.FX_COUNTERS // how many there are
)

// Limits is what an exec may use. Zero is no limit.
type Limits struct {
	State *os.File // the sandbox's directory, where its execs are counted; nil: they are not

	Wall, Idle  time.Duration
	CPU         time.Duration // of all its processes together
	Memory      int64         // bytes
	Pids        int64         // processes and threads
	SandboxPids int64         // of all execs of the sandbox together
	// WatchMemory, WatchPids say that nothing else holds that limit: it is looked at now and then.
	WatchMemory, WatchPids bool
	Nproc                  bool     // the limit of processes is held by RLIMIT_NPROC, in user namespaces of the sandbox's
	CPUs                   int      // how many processors the program can run on
	Tmpfs                  []string // file systems that count as memory where that is watched: paths inside
	Groups                 []Group
	// Check is asked about limits that are held elsewhere; it returns when to ask again. Its argument is how many bytes the exec
	// has written to disks. May be nil.
	Check func(written int64) (exceeded bool, again time.Duration)
	// Started is when the exec's time began; zero: when Start is called.
	Started time.Time

	// Waits says that the exec's number, time and CPU time begin later, by Process.Begin.
	Waits bool

	unnumbered bool // it is a check, and takes no number
}

// MaxCPUs is the number of processors that a CPU set can have.
const MaxCPUs = C.FX_CPUS

// Why an exec was ended by us.
type Why int

// Reasons to end an exec.
const (
	ByItself   Why = C.FX_BY_ITSELF
	ByWall     Why = C.FX_WALL
	ByIdle     Why = C.FX_IDLE
	ByCPU      Why = C.FX_CPU_TIME
	ByMemory   Why = C.FX_MEMORY_USED
	ByPids     Why = C.FX_TASKS
	ByCheck    Why = 100 // Limits.Check
	ByRequest  Why = 101 // Kill
	ByCancel   Why = 102 // Cancel
	neverAgain     = time.Duration(-1)

	grace = C.FX_GRACE * time.Microsecond
)

func (l *Limits) watched() int {
	return number(l.WatchMemory)*GroupMemory | number(l.WatchPids)*GroupPids | number(l.Check != nil)*C.FX_IO
}

// limits is Limits while an exec runs.
type limits struct {
	c        *C.struct_fx_limits
	free     []unsafe.Pointer
	check    func(int64) (bool, time.Duration)
	launcher int64        // bytes; the most memory that we had when the exec was started
	output   atomic.Int64 // microseconds of the monotonic clock
	why      atomic.Int64
	found    chan struct{} // something has been exceeded
	done     chan struct{}
	ended    sync.WaitGroup
	stopped  sync.Once
}

func (m *limits) str(s string) *C.char {
	p := C.CString(s)
	m.free = append(m.free, unsafe.Pointer(p))
	return p
}

// openLimits numbers the exec and makes its control groups. They are C's memory: it is looked at while the exec runs.
func openLimits(l *Limits) (*limits, error) {
	m := &limits{check: l.Check, found: make(chan struct{}, 1), done: make(chan struct{})}
	size := C.size_t(unsafe.Sizeof(C.struct_fx_limits{}))
	m.c = (*C.struct_fx_limits)(C.calloc(1, size))
	m.free = append(m.free, unsafe.Pointer(m.c))
	c := m.c
	c.wall_us, c.idle_us, c.cpu_us = micros(l.Wall), micros(l.Idle), micros(l.CPU)
	c.memory, c.pids, c.sandbox_pids = C.int64_t(l.Memory), C.int64_t(l.Pids), C.int64_t(l.SandboxPids)
	c.watched = C.uint(l.watched())
	c.nproc = C.uint64_t(number(l.Nproc))
	if l.Waits {
		c.waits = C.int64_t(int64(os.Getpid())<<32 | waiting.Add(1))
	}
	c.elsewhere, c.measure = 1, C.int(number(!l.unnumbered))
	c.cpus, c.state, c.check = C.uint(l.CPUs), -1, C.int(number(l.unnumbered || l.Waits))
	if l.State != nil {
		c.state = C.int(l.State.Fd())
	}
	if n := len(l.Tmpfs); n > 0 {
		list := (*[1 << 16]*C.char)(C.calloc(C.size_t(n), C.size_t(unsafe.Sizeof(uintptr(0)))))[:n:n]
		m.free = append(m.free, unsafe.Pointer(&list[0]))
		for i, path := range l.Tmpfs {
			list[i] = m.str(path)
		}
		c.tmpfs, c.n_tmpfs = &list[0], C.size_t(n)
	}
	for i, g := range l.Groups {
		c.cgroups[i] = m.group(&g)
		c.n_cgroups++
	}
	if !l.Started.IsZero() {
		c.started_us = C.fx_now_us() - micros(time.Since(l.Started))
	}
	if r, err := C.fx_limits_open(c); r < 0 {
		failed := fmt.Errorf("limit exec: write %s: %w", cmp.Or(C.GoString(c.failed), "control group"), err)
		if c.number > 0 {
			failed = &NumberedError{m.name(), failed}
		}
		m.release()
		return nil, failed
	}
	return m, nil
}

// group lays a group out for C.
func (m *limits) group(g *Group) C.struct_fx_cgroup {
	c := C.struct_fx_cgroup{
		parent: m.str(g.Dir), unified: C.int(number(g.Unified)), controllers: C.uint(g.Controllers),
		own: C.int(number(g.Own)), join: m.str(g.Join), shared: m.str(g.Shared), n_writes: C.size_t(len(g.Writes)),
	}
	for i, w := range g.Writes {
		c.writes[i] = C.struct_fx_write{file: m.str(w.File), value: C.int64_t(w.Value), optional: C.int(number(w.Optional))}
	}
	for i, n := range g.Counters {
		c.counters[i] = C.struct_fx_counter{file: m.str(n.File), word: m.str(n.Word), divisor: C.int64_t(n.Divisor)}
	}
	return c
}

// micros rounds up: 0 would be no limit.
func micros(d time.Duration) C.int64_t { return C.int64_t((d + time.Microsecond - 1).Microseconds()) }

// name is what the exec is called: "e000001".
func (m *limits) name() string { return fmt.Sprintf("e%06d", uint64(m.c.number)) }

func (m *limits) release() {
	for _, p := range m.free {
		C.free(p)
	}
	m.c, m.free = nil, nil
}

// started is called once the program has been executed.
func (m *limits) started(waits bool) {
	m.why.Store(int64(m.c.why)) // the start itself may have taken too long
	C.fx_limits_started(m.c)
	if waits {
		m.c.wall_us, m.c.idle_us = 0, 0 // they were those of the start
	}
}

// supervise begins to look at the limits. The clock, what the processes use and what is held elsewhere each have a goroutine of
// their own: how long it takes to look at what a program has made is for the program to say, and must hold up nothing else.
func (p *Process) supervise() {
	m := p.limits
	first := p.sample() // before anything else, so that of every program something is known
	clock := p.clock()
	m.ended.Go(func() {
		m.launcher = int64(C.fx_high_water()) // it never falls, and takes as long as a tenth of an exec
		m.repeat(first, p.sample, nil)
	})
	m.ended.Go(func() { m.repeat(clock, p.clock, m.found) })
	if m.check != nil { // a waiting exec has none yet
		m.ended.Go(func() { m.repeat(0, p.checkElsewhere, nil) })
	}
}

// repeat calls look when that says that it wants to be called, and whenever something comes from now.
func (m *limits) repeat(again time.Duration, look func() time.Duration, now <-chan struct{}) {
	for {
		var timer <-chan time.Time
		if again != neverAgain {
			timer = time.After(again)
		}
		select {
		case <-m.done:
			return
		case <-timer:
		case <-now:
		}
		again = look()
	}
}

// clock ends the exec when a limit has been exceeded: by the time that has passed, or as sample has found.
func (p *Process) clock() time.Duration {
	m := p.limits
	us := C.fx_limits_check(m.c, C.int64_t(m.output.Load()))
	switch why := Why(m.c.why); why {
	case ByItself:
	default:
		_ = p.end(why)
		return neverAgain
	}
	if us <= 0 {
		return neverAgain
	}
	return time.Duration(us) * time.Microsecond
}

// sample looks once at what the exec's processes use, and says when to look again.
func (p *Process) sample() time.Duration {
	us := C.fx_limits_sample(p.limits.c)
	if p.limits.c.why != C.FX_BY_ITSELF {
		p.limits.found <- struct{}{}
		return neverAgain
	}
	return time.Duration(us) * time.Microsecond
}

// checkTime is how long Check may take. What does not answer for so long, such as a file system, cannot be limited.
const checkTime = 10 * time.Second

// checkElsewhere asks about the limits that are held elsewhere.
func (p *Process) checkElsewhere() time.Duration {
	m := p.limits
	written := int64(C.fx_limits_written(m.c))
	next := make(chan time.Duration, 1)
	go func() {
		exceeded, again := m.check(written)
		if exceeded {
			again = neverAgain
		}
		next <- again
	}()
	again := neverAgain
	select {
	case <-m.done:
		return neverAgain
	case again = <-next:
	case <-time.After(checkTime):
	}
	if again == neverAgain {
		_ = p.end(ByCheck)
	}
	return again
}

// end has the supervisor end the exec, so that Wait still returns what it has used. Where the supervisor does not come to it
// the kernel does, by the supervisor's own end. The first reason counts.
func (p *Process) end(why Why) error {
	p.limits.why.CompareAndSwap(0, int64(why))
	err := p.sendTo(p.reaper, unix.SIGTERM, 0)
	time.AfterFunc(grace, func() { _ = p.sendTo(p.reaper, unix.SIGKILL, 0) })
	return err
}

// Output reports that the program has written something, for Limits.Idle.
func (p *Process) Output() {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	p.limits.output.Store(t.Nano() / int64(time.Microsecond))
}

// settleLimits ends the supervision, and reads what the exec has used.
func (p *Process) settleLimits(st *Status) {
	m := p.limits
	m.stop()
	C.fx_limits_settle(m.c)
	st.Why = Why(m.why.Load())
	st.read(m.c, m.launcher)
}

// closeLimits ends the supervision, where that is still to be done, and removes the exec's groups. Its processes are gone.
func (p *Process) closeLimits() {
	m := p.limits
	m.stop()
	C.fx_limits_close(m.c)
	m.release()
}

func (m *limits) stop() {
	m.stopped.Do(func() { close(m.done) })
	m.ended.Wait()
}

// read takes over what was counted and looked at while the exec ran.
func (st *Status) read(c *C.struct_fx_limits, launcher int64) {
	st.Wrote = int64(c.written)
	st.MaxRSS = int64(C.fx_used_memory(c, C.int64_t(st.MaxRSS), C.int64_t(st.Faults), C.int64_t(launcher)))
	st.MemoryPeak, st.TasksPeak = int64(c.memory_peak), int(c.tasks_peak)
	st.OutOfMemory, st.OutOfPids = c.oom_kills > 0, c.pids_events > 0
	st.CPU = time.Duration(C.fx_used_cpu(c, micros(st.CPU))) * time.Microsecond
}
