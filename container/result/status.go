package result

import (
	"errors"

	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/fault"
)

// CodeInputFailed is the error of an exec whose standard input could not be read to its end.
const CodeInputFailed = "input_failed"

const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// ExitStatus is what a command exits with that has failed with a code before its program ran.
func ExitStatus(code string) int {
	switch code {
	case lookup.CodeNotFound, lookup.CodeInterpreter:
		return exitNotFound
	case lookup.CodeNotExecutable, lookup.CodeRelativeInterp:
		return exitNotExecutable
	}
	return ExitLauncher
}

// FindingOf is what it means that a program was not started: one that is not there, or cannot be executed, is at fault
// itself.
func FindingOf(code string) string {
	if ExitStatus(code) == ExitLauncher {
		return FindingUnavailable
	}
	return FindingFailed
}

// FromError is the result of a program that was not started because of err, of which said is told.
func FromError(err error, said *Error) *Result {
	res := &Result{Outcome: NotStarted, ExitCode: ExitStatus(said.Code), Encoding: Encoding, Error: said}
	res.SetFinding(FindingOf(said.Code))
	if e, ok := errors.AsType[*fault.Error](err); ok {
		res.Sandbox, res.Exec, res.Isolated = e.Sandbox, e.Exec, e.Isolated
	}
	return res
}
