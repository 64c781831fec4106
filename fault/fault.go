// Package fault owns the error type of every package of ours: a cause, with a stable code for programs and a hint for people.
// It imports nothing of ours.
package fault

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Error is a failure of ours, with a stable word for programs and a hint for people.
type Error struct {
	Code string // such as "id_in_use"
	Hint string // may be empty
	Err  error
	// Where a program of a sandbox was not started: the sandbox, the exec that it would have been, and whether the sandbox
	// is isolated. Else empty.
	Sandbox, Exec string
	Isolated      bool
}

// Error gives the text of the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// New makes an error of a code, a hint that may be empty, and a cause in the form of fmt.Errorf.
func New(code, hint, format string, args ...any) *Error {
	return &Error{Code: code, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// Usage is the error of a command line that cannot be understood.
func Usage(message, hint string) *Error {
	return &Error{Code: UsageCode, Hint: hint, Err: errors.New(message)}
}

// DiskHint is for errors of writing the state. WriteHint takes its place where the caller may not write.
const (
	DiskHint  = "is the disk full? another place: --root DIR"
	WriteHint = "the state directory must be one that you can write: choose another with --root DIR"
)

// FullDisk reports whether writing the state has failed for want of room. To calls that write no file ENOSPC means something
// else.
func FullDisk(err error) bool {
	var pe *os.PathError
	return errors.As(err, &pe) && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT))
}

// Cause is an error without the path, which may be one that only we know.
func Cause(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
}
