package forkexec

/*
#include "forkexec.h"
*/
import "C"

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Self is the file that this process runs. /proc/self/exe may be another one (small.c).
type Self struct {
	Path     string // by which it was started; it may have gone since
	Dev, Ino uint64
}

// ReadSelf finds it.
func ReadSelf() (Self, error) {
	if s := C.fx_self(); s != nil {
		return Self{C.GoString(&s.path[0]), uint64(s.dev), uint64(s.ino)}, nil
	}
	const exe = "/proc/self/exe"
	path, err := os.Readlink(exe)
	if err != nil {
		return Self{}, err
	}
	var st unix.Stat_t
	if err := unix.Stat(exe, &st); err != nil {
		return Self{}, fmt.Errorf("stat %s: %w", exe, err)
	}
	return Self{path, st.Dev, st.Ino}, nil
}
