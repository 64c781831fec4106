package result

import (
	"errors"

	"github.com/sandboxrun/sandboxrun/fault"
)

// FindingOf is what it means that a program was not started: one that is not there, or cannot be executed, is at fault
// itself.
func FindingOf(code string) string {
	if fault.Status(code) == fault.ExitLauncher {
		return FindingUnavailable
	}
	return FindingFailed
}

// FromError is the result of a program that was not started because of err. shown is how the result describes err.
func FromError(err error, shown *Error) *Result {
	res := &Result{Outcome: NotStarted, ExitCode: fault.Status(shown.Code), Encoding: Encoding, Error: shown}
	res.SetFinding(FindingOf(shown.Code))
	if e, ok := errors.AsType[*fault.Error](err); ok {
		res.Sandbox, res.Exec, res.Isolated = e.Sandbox, e.Exec, e.Isolated
	}
	return res
}
