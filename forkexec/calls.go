package forkexec

/*
#include "forkexec.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Stage reports when a call is made.
type Stage int

// The stages, in their order.
const (
	AtEntry    Stage = C.FX_AT_ENTRY   // first of all, in the program's user namespace with every capability there
	Unfiltered Stage = C.FX_UNFILTERED // when all is done but for the seccomp filter
	InPlace    Stage = C.FX_IN_PLACE   // where the program would run
)

// Calls are system calls that a check makes as a program would, in the order in which they are added.
type Calls struct {
	list  []C.struct_fx_call
	texts []byte // arguments that are strings, so that one object has to be pinned for all of them
	fix   []textAt
	pin   runtime.Pinner
}

type textAt struct{ call, arg, offset int }

// Result is an argument that stands for what an earlier call has returned. Only the first argument can be one.
type Result int

// Proc is an argument that stands for the exec's procfs where a cover keeps the program from it (Cover), and CheckProc its descriptor
// from Unfiltered on. Only the first argument can be it.
const (
	Proc      Result = C.FX_FROM_PROC
	CheckProc        = C.FX_PROC
)

// Add adds a call and returns its index. Arguments are numbers (int, uintptr), strings, and pointers to memory that the
// kernel reads or writes: a []byte that is not empty, or an unsafe.Pointer to Go memory.
func (c *Calls) Add(stage Stage, number uintptr, args ...any) int {
	call := C.struct_fx_call{number: C.long(number), stage: C.int(stage), from: -1}
	for i, a := range args {
		switch a := a.(type) {
		case Result:
			call.from = C.int(a)
		case int:
			call.arg[i] = C.long(a)
		case uintptr:
			call.arg[i] = C.long(a)
		case string:
			c.fix = append(c.fix, textAt{len(c.list), i, len(c.texts)})
			c.texts = append(append(c.texts, a...), 0)
		case []byte:
			c.pointer(&call.arg[i], unsafe.Pointer(&a[0]))
		case unsafe.Pointer:
			c.pointer(&call.arg[i], a)
		default:
			panic(fmt.Sprintf("call %d: an argument cannot be a %T", number, a))
		}
	}
	c.list = append(c.list, call)
	return len(c.list) - 1
}

func (c *Calls) pointer(arg *C.long, p unsafe.Pointer) {
	c.pin.Pin(p)
	*arg = C.long(uintptr(p))
}

// Release lets go of the memory that calls use. They must be released, made or not.
func (c *Calls) Release() { c.pin.Unpin() }

// ErrNotMade is the error of a call that was never made.
var ErrNotMade = errors.New("the call was not made")

// Result is the outcome of a call: what it returned, or a unix.Errno, or ErrNotMade.
func (c *Calls) Result(i int) (int64, error) {
	r := &c.list[i]
	switch {
	case r.done == 0:
		return -1, ErrNotMade
	case r.result == -1:
		return -1, unix.Errno(r.err)
	}
	return int64(r.result), nil
}

// CheckName is what a control group of Check is called: the name of an exec that is none.
const CheckName = "e000000"

// Check makes calls where the program of a command would run: all that Start does is done, but the program is not
// executed. It returns when everything of it has ended, with the processor time that its control group has counted, 0
// where there is none. The error is as that of Start.
func Check(c *Command, calls *Calls) (cpu time.Duration, err error) {
	var m cmem
	defer m.pin.Unpin()
	x, done := c.layout(&m)
	defer done()
	x.stub, x.status, x.waiter, x.path = -1, -1, -1, nil
	if len(calls.texts) > 0 {
		calls.pin.Pin(&calls.texts[0])
		for _, f := range calls.fix {
			calls.list[f.call].arg[f.arg] = C.long(uintptr(unsafe.Pointer(&calls.texts[f.offset])))
		}
	}
	calls.pin.Pin(&calls.list[0])
	x.calls, x.n_calls = &calls.list[0], C.size_t(len(calls.list))
	limits := c.Limits
	limits.unnumbered = true
	limits.Wall, limits.Idle = 0, 0 // a start that they end would look as if the calls had been made
	lim, err := openLimits(&limits)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	x.limits = lim.c
	C.fx_start(x)
	runtime.KeepAlive(c)
	runtime.KeepAlive(calls)
	for _, f := range []*os.File{file(x.reaper_pidfd, "pidfd"), file(x.program_pidfd, "pidfd")} {
		if f != nil {
			defer f.Close()
		}
	}
	if x.reaper_pidfd >= 0 { // it ends by itself, and last
		for unix.Waitid(unix.P_PIDFD, int(x.reaper_pidfd), nil, unix.WEXITED|unix.WALL, nil) == unix.EINTR {
		}
	}
	C.fx_limits_close(lim.c)
	cpu = time.Duration(lim.c.cpu_used_us) * time.Microsecond
	lim.release()
	if x.step != C.FX_OK {
		return 0, fmt.Errorf("%w: %w", ErrNotStarted, c.stepError(x))
	}
	return cpu, nil
}
