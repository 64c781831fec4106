package forkexec

/*
#include "short.h"
*/
import "C"

import (
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Short is an exec that was run before Go started (client.c), of which there is more to say than that its program has exited.
// All of its processes are gone.
type Short struct {
	Exec   string
	Status Status
	Wall   time.Duration
	Sealed *Sealed  // what process 1 holds
	State  *os.File // the sandbox's directory

	Output [2]Kept // standard output and error
	Merged bool    // both were one pipe

	InputFailed error // reading standard input
	RelayGone   bool
	NoteFailed  error // writing the event of its start
	Noted       bool  // the event of its end is written
	Printed     bool  // its result has gone to standard output, or failed to, then Output[0] has the error
	Absent      []int // for each denied path where nothing was, the descriptor of its grant

	ResultGiven  bool // what --result asks for is written, or failed to be
	ResultFailed error
	ResultDir    *os.File // else where it is to be written, unless to a descriptor
	ResultFile   *os.File
	ResultName   string
}

// Kept is what came of a stream.
type Kept struct {
	Total      int64
	Head, Tail []byte // where it was kept. The tail begins at Next
	Next       int
	Failed     error // of writing it to the caller
}

// Of the index of Answer.Results.
const (
	ShortMerged  = C.FX_MERGED
	ShortTimeout = C.FX_TIMEOUT
)

// ResultPrefix is how the name of a result's file begins until it is whole.
const ResultPrefix = C.FX_RESULT_PREFIX

// TakeShort gives the exec that was run before Go started, if one is to be judged. It gives it once.
func TakeShort() (*Short, error) {
	c := &C.fx_short
	if c.ran == 0 {
		return nil, nil //nolint:nilnil // most commands have none
	}
	c.ran = 0
	l := c.limits
	s := &Short{
		Exec: fmt.Sprintf("e%06d", uint64(l.number)), Wall: time.Duration(c.wall_us) * time.Microsecond,
		Status: Status{Lost: c.reported == 0 && c.cancelled == 0}, State: os.NewFile(uintptr(l.state), "state"),
		Merged: c.merged != 0, RelayGone: c.relay_gone != 0, Noted: c.noted != 0, Printed: c.printed != 0,
		InputFailed: failedBy(c.input_failed), NoteFailed: failedBy(c.note_failed),
		ResultGiven: c.result_given != 0, ResultFailed: failedBy(c.result_failed),
	}
	st := decode(unsafe.Slice((*byte)(unsafe.Pointer(&c.status)), statusSize))
	st.Lost = s.Status.Lost
	if c.cancelled != 0 {
		st.Wait = unix.WaitStatus(c.cancelled)
	}
	st.Why = Why(l.why)
	st.read(l, int64(c.launcher))
	s.Status = st
	for i := range s.Output {
		s.Output[i] = kept(&c.kept[i], int64(c.total[i]), failedBy(c.failed[i]))
	}
	if s.Printed && s.Output[0].Failed == nil {
		s.Output[0].Failed = failedBy(c.print_failed)
	}
	for _, fd := range unsafe.Slice(c.absent, c.n_absent) {
		s.Absent = append(s.Absent, int(fd))
	}
	if c.result_dir >= 0 && !s.ResultGiven {
		s.ResultDir, s.ResultFile = os.NewFile(uintptr(c.result_dir), "result"), os.NewFile(uintptr(c.result_file), "result")
		s.ResultName = C.GoString(&c.result_name[0])
	}
	var err error
	s.Sealed, err = decodeSealed(C.GoBytes(unsafe.Pointer(c.sealed), C.int(c.sealed_size)))
	return s, err
}

// Claim is a sandbox that a pool has given to this process before Go started. It ends with this process.
type Claim struct {
	ID  string
	Dir string // that its program starts in; empty: the policy's
}

// Lost reports whether the pool has ended, so that nobody will remove the sandbox.
func (c *Claim) Lost() bool { return C.fx_claim_lost() != 0 }

// TakeClaim gives it, if there is one.
func TakeClaim() *Claim {
	c := &C.fx_claim
	if c.fd < 0 {
		return nil
	}
	return &Claim{ID: C.GoString(&c.id[0]), Dir: C.GoString(c.dir)}
}

func failedBy(errno C.int) error {
	if errno == 0 {
		return nil
	}
	return unix.Errno(errno)
}

func kept(k *C.struct_fx_kept, total int64, failed error) Kept {
	out := Kept{Total: total, Failed: failed}
	if k.data == nil {
		return out
	}
	all := unsafe.Slice((*byte)(unsafe.Pointer(k.data)), int(k.limit))[:int(k.len):int(k.len)]
	half := min(int(k.limit)/2, len(all))
	out.Head, out.Tail, out.Next = all[:half:half], all[half:], int(k.next)
	return out
}

// jsonText is answer.c's writing of a text, as it stands between quotes; no text for what is not UTF-8.
func jsonText(text []byte) (string, bool) {
	const longest = 6
	to := make([]byte, longest*len(text)+1)
	n := C.fx_json_text((*C.char)(unsafe.Pointer(&to[0])), (*C.char)(unsafe.Pointer(unsafe.SliceData(text))), C.size_t(len(text)))
	if n < 0 {
		return "", false
	}
	return string(to[:n]), true
}
