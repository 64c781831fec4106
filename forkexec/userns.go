package forkexec

/*
#include "forkexec.h"
*/
import "C"

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// UserNamespace makes a user namespace that nobody is in, for mounts that are idmapped by it. The maps are as in
// user_namespaces(7); to have more than one line takes CAP_SETUID and CAP_SETGID. The error is a unix.Errno.
func UserNamespace(uids, gids string) (*os.File, error) {
	var m cmem
	defer m.pin.Unpin()
	stack := stacks.Get().(*[C.FX_STACKS]byte)
	defer stacks.Put(stack)
	m.pin.Pin(stack)
	var errno C.int
	m.pin.Pin(&errno)
	fd := C.fx_user_namespace(m.str(uids), m.str(gids), (*C.char)(unsafe.Pointer(stack)), &errno)
	if fd < 0 {
		return nil, unix.Errno(errno)
	}
	return os.NewFile(uintptr(fd), "user namespace"), nil
}
