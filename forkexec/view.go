package forkexec

/*
#include "forkexec.h"
*/
import "C"

import (
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ViewKind says what a ViewStep does.
type ViewKind int

// Kinds of steps.
const (
	ViewHold     ViewKind = C.FX_VIEW_HOLD      // copy what is mounted at Target, for the step with the number For
	ViewAttach   ViewKind = C.FX_VIEW_ATTACH    // put the copy Tree, or what is held for this step, at Target
	ViewCover    ViewKind = C.FX_VIEW_COVER     // put a new tmpfs with the options Source over the directory Target; the steps until it is covered are in it
	ViewCovered  ViewKind = C.FX_VIEW_COVERED   // give it the Attributes; Target is as before
	ViewDir      ViewKind = C.FX_VIEW_DIR       // make a directory
	ViewFile     ViewKind = C.FX_VIEW_FILE      // make an empty file
	ViewLink     ViewKind = C.FX_VIEW_LINK      // make a link to Source
	ViewAgain    ViewKind = C.FX_VIEW_AGAIN     // show what is under the cover
	ViewMaskDir  ViewKind = C.FX_VIEW_MASK_DIR  // hide the directory Target by a tmpfs with the options Source
	ViewMaskFile ViewKind = C.FX_VIEW_MASK_FILE // hide what else is at Target by Source
)

// ViewStep is one step of showing one exec what others do not see.
type ViewStep struct {
	Kind       ViewKind `json:"kind"`
	Source     string   `json:"source,omitempty"`
	Target     string   `json:"target"`
	Attributes uint64   `json:"attributes,omitempty"` // unix.MOUNT_ATTR_*
	For        int      `json:"for,omitempty"`
	Tree       *os.File `json:"-"`
}

// ViewCheck is what the program must see of it, looked at with its own rights before it is executed.
type ViewCheck struct {
	Path     string
	Denied   bool // it cannot be opened
	Empty    bool // and if it can, nothing is in it
	Writable bool
	Dev, Ino uint64 // else it is this file, on a read-only mount unless Writable
}

// Extra is what one exec sees besides what every exec of its sandbox sees, or does not see.
type Extra struct {
	Steps  []ViewStep
	First  int // so many of the steps are made before the command's mounts
	Checks []ViewCheck
}

// Add puts the steps and checks of another one behind these.
func (e *Extra) Add(o Extra) {
	n := len(e.Steps)
	e.Steps = append(slices.Clip(e.Steps), o.Steps...)
	for i := n; i < len(e.Steps); i++ {
		if e.Steps[i].Kind == ViewHold {
			e.Steps[i].For += n
		}
	}
	e.Checks = append(slices.Clip(e.Checks), o.Checks...)
}

// Close closes the copies of mounts that it brings.
func (e *Extra) Close() {
	for _, s := range e.Steps {
		if s.Tree != nil {
			s.Tree.Close()
		}
	}
}

func (e *Extra) layout(m *cmem, x *C.struct_fx_exec) {
	if len(e.Steps) > 0 {
		list := make([]C.struct_fx_view_step, len(e.Steps))
		for i, s := range e.Steps {
			list[i] = C.struct_fx_view_step{
				kind: C.int(s.Kind), fd: -1, source: m.str(s.Source), target: m.str(s.Target), attributes: C.uint64_t(s.Attributes),
			}
			if s.Kind == ViewHold {
				list[i].attributes = C.uint64_t(s.For)
			}
			if s.Tree != nil {
				list[i].fd = C.int(s.Tree.Fd())
			}
		}
		m.pin.Pin(&list[0])
		x.view_steps, x.n_view_steps, x.n_view_first = &list[0], C.size_t(len(list)), C.size_t(e.First)
	}
	if len(e.Checks) > 0 {
		list := make([]C.struct_fx_view_check, len(e.Checks))
		for i, k := range e.Checks {
			list[i] = C.struct_fx_view_check{
				path: m.str(k.Path), denied: C.int(number(k.Denied)), empty: C.int(number(k.Empty)), writable: C.int(number(k.Writable)),
				dev: C.uint64_t(k.Dev), ino: C.uint64_t(k.Ino),
			}
		}
		m.pin.Pin(&list[0])
		x.view_checks, x.n_view_checks = &list[0], C.size_t(len(list))
	}
}

// CopyTrees copies what is mounted at paths of the host and below them, with attributes, for a launcher that has no privilege to do so itself. No
// part of a path may be a link. failed is the path that could not be copied.
func CopyTrees(target *os.File, paths []string, attributes uint64) (trees []*os.File, failed string, err error) {
	if len(paths) == 0 {
		return nil, "", nil
	}
	var m cmem
	defer m.pin.Unpin()
	stack := stacks.Get().(*[C.FX_STACKS]byte)
	defer stacks.Put(stack)
	m.pin.Pin(stack)
	fds := make([]C.int, len(paths))
	for i := range fds {
		fds[i] = -1
	}
	m.pin.Pin(&fds[0])
	t := &C.struct_fx_trees{
		target: C.int(target.Fd()), paths: m.strs(paths), n: C.size_t(len(paths)), attributes: C.uint64_t(attributes), fds: &fds[0],
		stacks: (*C.char)(unsafe.Pointer(stack)),
	}
	m.pin.Pin(t)
	C.fx_copy_trees(t)
	for i, fd := range fds {
		if f := file(fd, paths[i]); f != nil {
			trees = append(trees, f)
		}
	}
	if int(t.done) == len(paths) {
		return trees, "", nil
	}
	for _, f := range trees {
		f.Close()
	}
	if t.err == 0 {
		return nil, paths[t.done], fmt.Errorf("copy mounts: %w", unix.ESRCH)
	}
	return nil, paths[t.done], unix.Errno(t.err)
}
