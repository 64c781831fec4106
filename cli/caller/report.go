package caller

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Exit statuses of the launcher. Every other status is the program's.
const (
	ExitRefused  = 1 // verify: the record is not good; doctor: the default policy cannot be enforced; explain: not inside
	ExitLauncher = 125
	ExitSignal   = 128 // plus the signal's number
)

// Describe gives the code, message and hint of an error.
func Describe(err error) *result.Error {
	var (
		ce *fault.Error
		se *spec.Error
		re *rootfs.Error
		pe *spec.PolicyError
	)
	if hint := diagnose.Scarce(err); hint != "" {
		if errors.As(err, &ce) && ce.Code == diagnose.CodeLimitReached {
			hint = ce.Hint
		}
		return &result.Error{Code: diagnose.CodeLimitReached, Message: err.Error(), Hint: hint}
	}
	switch {
	case errors.As(err, &ce):
		return &result.Error{Code: ce.Code, Message: err.Error(), Hint: ce.Hint}
	case errors.As(err, &se):
		return &result.Error{Code: se.Code, Message: err.Error(), Hint: se.Hint}
	case errors.As(err, &re):
		return &result.Error{Code: re.Code, Message: err.Error(), Hint: re.Hint}
	case errors.As(err, &pe):
		return describePolicy(pe)
	}
	return &result.Error{Code: "failed", Message: err.Error()}
}

func describePolicy(pe *spec.PolicyError) *result.Error {
	s := &result.Error{Code: "policy_invalid", Message: pe.Error()}
	for _, problem := range pe.Problems {
		if problem.Hint != "" {
			s.Hint = problem.Hint
			break
		}
	}
	return s
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
