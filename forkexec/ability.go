package forkexec

/*
#include "forkexec.h"
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ability is something that can be tried by itself.
type Ability int

// What can be tried.
const (
	CanOverlay    Ability = C.FX_CAN_OVERLAY      // mount an overlay in a user namespace
	CanMoveTrees  Ability = C.FX_CAN_MOVE_TREES   // copy a tree of mounts and put it elsewhere, in a user namespace
	CanNoNewPrivs Ability = C.FX_CAN_NO_NEW_PRIVS // give up what setuid files would give
	CanFilter     Ability = C.FX_CAN_FILTER       // load a seccomp filter
	CanKeyring    Ability = C.FX_CAN_KEYRING      // join a new session keyring
)

// Try does one thing in a process that is thrown away. It is not tried where what has to come before it fails; err then is
// that failure. filter is for CanFilter.
func Try(what Ability, filter []unix.SockFilter) (tried bool, err error) {
	stack := stacks.Get().(*[C.FX_STACKS]byte)
	defer stacks.Put(stack)
	var pin runtime.Pinner
	defer pin.Unpin()
	prog := &C.struct_sock_fprog{len: C.ushort(len(filter))}
	if len(filter) > 0 {
		pin.Pin(&filter[0])
		prog.filter = (*C.struct_sock_filter)(unsafe.Pointer(&filter[0]))
	} else if what == CanFilter {
		return false, fmt.Errorf("load a filter: there is none")
	}
	pin.Pin(prog)
	var errno C.int
	outcome := C.fx_try(C.enum_fx_ability(what), C.int(os.Geteuid()), C.int(os.Getegid()), prog, (*C.char)(unsafe.Pointer(stack)), &errno)
	if outcome == C.FX_CAN {
		return true, nil
	}
	return outcome == C.FX_CANNOT, unix.Errno(errno)
}
