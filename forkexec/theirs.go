package forkexec

/*
#include "forkexec.h"
*/
import "C"

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Theirs is a mount that is made in the place of another process.
type Theirs struct {
	Userns, Mntns, Root, Cwd int // descriptors of its own
	UID, GID                 int // that it makes files as, as numbers of this process' user namespace
	Source, Target, Type     string
	Flags                    uint64 // of mount(2)
	Data                     string
}

// Mount makes the mount, with the capabilities that root of that user namespace has, and no other. The caller must be allowed to enter it.
func (t *Theirs) Mount() unix.Errno {
	var m cmem
	defer m.pin.Unpin()
	stack := stacks.Get().(*[C.FX_STACKS]byte)
	defer stacks.Put(stack)
	m.pin.Pin(stack)
	c := &C.struct_fx_theirs{
		userns: C.int(t.Userns), mntns: C.int(t.Mntns), root: C.int(t.Root), cwd: C.int(t.Cwd), uid: C.int(t.UID), gid: C.int(t.GID),
		source: m.str(t.Source), target: m.str(t.Target), _type: m.str(t.Type), flags: C.ulong(t.Flags), data: m.str(t.Data),
		stacks: (*C.char)(unsafe.Pointer(stack)),
	}
	m.pin.Pin(c)
	C.fx_mount_theirs(c)
	return unix.Errno(c.err)
}
