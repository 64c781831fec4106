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
	"unsafe"

	"golang.org/x/sys/unix"
)

// Put is a file to be written before a program is executed, or a directory to be made. No link is followed out of the program's
// working directory.
type Put struct {
	Parent string // of a directory that is to be made, relative to the working directory; empty: this is a file
	Name   string // relative to the working directory, or to Parent
	Data   []byte
	Mode   uint32 // of a file that was not there, less the umask
}

// Fresh is a flag of a Mount: a mount where the path is not, or holds a link, fails.
const Fresh uintptr = C.FX_FRESH

func (m *cmem) puts(list []Put) *C.struct_fx_put {
	if len(list) == 0 {
		return nil
	}
	out := make([]C.struct_fx_put, len(list))
	for i, p := range list {
		out[i] = C.struct_fx_put{parent: m.opt(p.Parent), name: m.str(p.Name), size: C.size_t(len(p.Data)), mode: C.uint(p.Mode)}
		if len(p.Data) > 0 {
			m.pin.Pin(&p.Data[0])
			out[i].data = unsafe.Pointer(&p.Data[0])
		}
	}
	m.pin.Pin(&out[0])
	return &out[0]
}

// View is what a program of one exec sees. It stays as it is when the exec has ended.
type View struct {
	Root      *os.File // O_PATH
	namespace *os.File // without it the view's mounts would come apart
}

func viewOf(x *C.struct_fx_exec) *View {
	v := &View{file(x.view[0], "view"), file(x.view[1], "mount namespace")}
	if v.namespace == nil {
		return nil
	}
	return v
}

// Close lets go of the view.
func (v *View) Close() {
	if v == nil {
		return
	}
	if v.Root != nil {
		v.Root.Close()
	}
	go v.namespace.Close() // the kernel waits for all processors until it has taken the mounts down, which nobody else has to
}

// Visit does all that Start does for a command but executes no program: its files are written, and its view is kept where it asks
// for that. It has no exec's number, and its control groups must be none.
func Visit(c *Command) (*View, error) {
	if len(c.Limits.Groups) > 0 {
		return nil, errors.New("visit a sandbox: it is no exec that a control group could count")
	}
	var m cmem
	defer m.pin.Unpin()
	x, done := c.layout(&m)
	defer done()
	x.stub, x.status, x.waiter, x.path = -1, -1, -1, nil
	limits := c.Limits
	limits.unnumbered = true
	lim, err := openLimits(&limits)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	x.limits = lim.c
	C.fx_start(x)
	runtime.KeepAlive(c)
	for _, f := range []*os.File{file(x.program_pidfd, "pidfd"), file(x.reaper_pidfd, "pidfd")} {
		if f != nil { // they end by themselves
			_, _ = waitPidfd(f)
			f.Close()
		}
	}
	why := Why(lim.c.why)
	C.fx_limits_close(lim.c)
	lim.release()
	view := viewOf(x)
	switch {
	case x.step != C.FX_OK:
		err = c.stepError(x)
	case why != ByItself || x.cancelled != 0:
		err = unix.ETIMEDOUT
	default:
		return view, nil
	}
	view.Close()
	return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
}
