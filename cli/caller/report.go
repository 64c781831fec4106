package caller

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
)

// Describe gives the code, message and hint of an error.
func Describe(err error) *result.Error {
	d := &result.Error{Code: fault.Failed, Message: err.Error()}
	e, known := errors.AsType[*fault.Error](err)
	if known {
		d.Code, d.Hint = e.Code, e.Hint
	}
	if hint := diagnose.Scarce(err); hint != "" && d.Code != fault.LimitReached {
		d.Code, d.Hint = fault.LimitReached, hint
	}
	if d.Hint == fault.DiskHint && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS)) {
		d.Hint = fault.WriteHint
	}
	if _, missing := os.Stat("/proc/self/fd"); missing != nil && d.Code != fault.UsageCode {
		d.Hint = "/proc is not mounted here, and sandboxrun needs it: mount -t proc proc /proc"
	}
	return d
}

// Report prints an error on standard error, passes its result on, and returns the exit status.
func (c *Caller) Report(err error) int {
	s := Describe(err)
	c.Complain(s)
	r := result.FromError(err, s)
	if c.OnFailure != nil {
		c.OnFailure(r)
	}
	return r.ExitCode
}

// Complain prints an error on standard error.
func (c *Caller) Complain(e *result.Error) {
	red, off := c.colour(c.Err, "\x1b[1;31m")
	fmt.Fprintf(c.Err, "%ssandboxrun: %s:%s %s\n", red, e.Code, off, e.Message)
	if e.Hint != "" {
		fmt.Fprintf(c.Err, "hint: %s\n", e.Hint)
	}
}

// Warn prints a warning on standard error, or adds it to Warnings.
func (c *Caller) Warn(message string) {
	if c.Warnings != nil {
		*c.Warnings = append(*c.Warnings, message)
		return
	}
	yellow, off := c.colour(c.Err, "\x1b[33m")
	fmt.Fprintf(c.Err, "%ssandboxrun: warning:%s %s\n", yellow, off, strings.TrimSuffix(message, "\n"))
}

// PrintJSON prints a value as JSON on one line of standard output.
func (c *Caller) PrintJSON(v any) {
	enc := json.NewEncoder(c.Out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // LostOutput reports the error
}
