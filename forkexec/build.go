package forkexec

/*
#include "forkexec.h"
*/
import "C"

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OpKind says what an Op does.
type OpKind int

// Kinds of steps.
const (
	OpMkdir   OpKind = C.FX_OP_MKDIR   // make the directory Target with mode Flags
	OpSymlink OpKind = C.FX_OP_SYMLINK // make the link Target to Source
	OpFile    OpKind = C.FX_OP_FILE    // make the file Target with mode Flags and content Data
	OpMount   OpKind = C.FX_OP_MOUNT   // mount(2)
	OpBind    OpKind = C.FX_OP_BIND    // show Source, in which no part may be a link, and all that is mounted there at Target
	OpAttr    OpKind = C.FX_OP_ATTR    // set the MOUNT_ATTR_* in Flags on Target and all below, and make them private
	OpMove    OpKind = C.FX_OP_MOVE    // put the detached tree Tree at Target
	OpRoot    OpKind = C.FX_OP_ROOT    // make Target the root, and let go of the old one
	OpSysctl  OpKind = C.FX_OP_SYSCTL  // write Data to the setting Target of the sandbox's user namespace
	OpCgroup  OpKind = C.FX_OP_CGROUP  // mount control groups of version 2 at Target, if possible
	OpNetwork OpKind = C.FX_OP_NETWORK // let group Flags ping, and if LowPorts everybody listen below 1024, in the sandbox's own network
	OpTimes   OpKind = C.FX_OP_TIMES   // give Target the time Modified
	// OpWhiteout makes at Target what hides a name in an overlay.
	OpWhiteout OpKind = C.FX_OP_WHITEOUT
	// OpHide mounts over the directory Target an overlay that shows it without the names that are whiteouts in the directory Source.
	OpHide OpKind = C.FX_OP_HIDE
)

// Op is one step of building what a sandbox's programs see. Paths are the sandbox's.
type Op struct {
	Kind                 OpKind
	Source, Target, Type string
	Data                 string
	Flags                uintptr
	Modified             int64 // nanoseconds since 1970 of what OpFile or OpTimes gives a time; 0: now
	Tree                 *os.File
	LowPorts             bool
}

// Build carries out the steps in the namespaces of a sandbox, with every capability there. The error is a *StepError. What
// OpNetwork could not have is no error but a warning's text.
func Build(target *os.File, namespaces int, ops []Op) (missing []string, err error) {
	var m cmem
	defer m.pin.Unpin()
	stack := stacks.Get().(*[C.FX_STACKS]byte)
	defer stacks.Put(stack)
	m.pin.Pin(stack)
	list := make([]C.struct_fx_op, len(ops))
	for i, o := range ops {
		list[i] = C.struct_fx_op{
			kind: C.int(o.Kind), source: m.opt(o.Source), target: m.str(o.Target), fstype: m.opt(o.Type),
			data: m.str(o.Data), size: C.size_t(len(o.Data)), flags: C.ulong(o.Flags), fd: -1, modified: C.int64_t(o.Modified),
		}
		if o.Tree != nil {
			list[i].fd = C.int(o.Tree.Fd())
		}
		if o.Kind == OpNetwork {
			list[i].fd = C.int(number(o.LowPorts))
		}
	}
	m.pin.Pin(&list[0])
	b := &C.struct_fx_build{
		target: C.int(target.Fd()), namespaces: C.int(namespaces | unix.CLONE_NEWUSER), ops: &list[0],
		n_ops: C.size_t(len(list)), stacks: (*C.char)(unsafe.Pointer(stack)),
	}
	m.pin.Pin(b)
	C.fx_build(b)
	for bit, what := range map[C.uint]string{
		C.FX_NO_LOW_PORTS: "no program can listen on ports below 1024", C.FX_NO_PING: "no program can ping",
		C.FX_NO_ADDRESSES: "programs that ask for AI_ADDRCONFIG may resolve no name",
	} {
		if b.missing&bit != 0 {
			missing = append(missing, what)
		}
	}
	if b.step == C.FX_OK {
		return missing, nil
	}
	e := &StepError{Step: stepName(b.step), Err: unix.Errno(b.err)}
	if b.step == C.FX_MOUNT {
		o := ops[b.index]
		e.Step = "build the sandbox's files: " + o.Kind.String()
		e.Detail = fmt.Sprintf("%q", o.Target)
		if o.Source != "" {
			e.Detail = fmt.Sprintf("%q on %q", o.Source, o.Target)
		}
	}
	return missing, e
}

// String is what a step of this kind does, for errors.
func (k OpKind) String() string {
	return [...]string{
		"make directory", "make link", "make file", "mount", "bind", "protect", "mount", "change root to", "set", "mount", "set up the network", "set the time of",
		"make whiteout", "hide names",
	}[k]
}
