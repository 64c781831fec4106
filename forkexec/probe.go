package forkexec

/*
#include "forkexec.h"
*/
import "C"

import (
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ProbeStep is one thing that a sandbox needs from the kernel.
type ProbeStep int

// The steps, in the order in which they are tried.
const (
	ProbeOK         ProbeStep = C.FX_PROBE_OK
	ProbeUserns     ProbeStep = C.FX_PROBE_USERNS     // make a user namespace
	ProbeMap        ProbeStep = C.FX_PROBE_MAP        // map the caller in it
	ProbeNamespaces ProbeStep = C.FX_PROBE_NAMESPACES // make mount, IPC, UTS and PID namespaces in it
	ProbeMount      ProbeStep = C.FX_PROBE_MOUNT      // mount a tmpfs there
	ProbeAttr       ProbeStep = C.FX_PROBE_ATTR       // make a mount read-only with all below it
	ProbeNetwork    ProbeStep = C.FX_PROBE_NETWORK    // make a network namespace
	ProbeProc       ProbeStep = C.FX_PROBE_PROC       // mount a fresh /proc
	ProbeNested     ProbeStep = C.FX_PROBE_NESTED     // make a user namespace in there, and map the caller in it
)

// Probe tries what a sandbox needs, in a process that is thrown away, and returns the first step that fails and its error.
func Probe() (ProbeStep, unix.Errno) {
	stack := stacks.Get().(*[C.FX_STACKS]byte)
	defer stacks.Put(stack)
	var errno C.int
	var step C.int
	for range 10 {
		step = C.fx_probe(C.int(os.Geteuid()), C.int(os.Getegid()), (*C.char)(unsafe.Pointer(stack)), &errno)
		if step != C.FX_PROBE_USERNS || unix.Errno(errno) != unix.ENOSPC {
			break
		}
		time.Sleep(20 * time.Millisecond) // the kernel counts the namespaces of a sandbox that has just ended for a moment longer
	}
	return ProbeStep(step), unix.Errno(errno)
}

// ProbeNproc reports whether RLIMIT_NPROC can limit a sandbox: since Linux 5.14 a user namespace's processes are counted by
// themselves. Root's are not limited at all.
func ProbeNproc() bool {
	stack := stacks.Get().(*[C.FX_STACKS]byte)
	defer stacks.Put(stack)
	return C.fx_probe_nproc(C.int(os.Geteuid()), C.int(os.Getegid()), (*C.char)(unsafe.Pointer(stack))) != 0
}

// ProbeOverlays says for each directory why no overlay can hide a name in it for a sandbox; 0: one can. It tries, in a mount namespace that
// is thrown away.
func ProbeOverlays(dirs []string) []unix.Errno {
	why := make([]unix.Errno, len(dirs))
	if len(dirs) == 0 {
		return why
	}
	var m cmem
	defer m.pin.Unpin()
	stack := stacks.Get().(*[C.FX_STACKS]byte)
	defer stacks.Put(stack)
	paths, errs := make([]*C.char, len(dirs)), make([]C.int, len(dirs))
	for i, dir := range dirs {
		paths[i] = m.str(dir)
	}
	m.pin.Pin(&paths[0])
	m.pin.Pin(&errs[0])
	o := &C.struct_fx_overlays{uid: C.int(os.Geteuid()), gid: C.int(os.Getegid()), n: C.size_t(len(dirs)), dirs: &paths[0], errs: &errs[0]}
	if C.fx_probe_overlays(o, (*C.char)(unsafe.Pointer(stack))) < 0 {
		for i := range why {
			why[i] = unix.EPERM
		}
		return why
	}
	for i, e := range errs {
		why[i] = unix.Errno(e)
	}
	return why
}

// MakingTakes is how many more processes and threads the caller must be able to have when a sandbox is made.
const MakingTakes = C.FX_ROOM

// ProbeRoom returns how many more processes and threads the caller may have, up to MakingTakes.
func ProbeRoom() int {
	stack := stacks.Get().(*[C.FX_STACKS]byte)
	defer stacks.Put(stack)
	return int(C.fx_probe_room((*C.char)(unsafe.Pointer(stack))))
}

// Begun is when this process began, before the Go runtime did, by the monotonic clock.
func Begun() time.Duration { return time.Duration(C.fx_begun_us) * time.Microsecond }

// FirstParent is the process that was our parent when this process began, before the Go runtime did.
func FirstParent() int { return int(C.fx_first_parent) }
