package container

import (
	"errors"

	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/forkexec"
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
	return exitLauncher
}

// FindingOf is what it means that a program was not started: one that is not there, or cannot be executed, is at fault
// itself.
func FindingOf(code string) string {
	if ExitStatus(code) == exitLauncher {
		return FindingUnavailable
	}
	return FindingFailed
}

// NotStartedResult is the result of a program that was not started because of err, of which said is told.
func NotStartedResult(err error, said *ResultError) *Result {
	res := &Result{Outcome: NotStarted, ExitCode: ExitStatus(said.Code), Encoding: encodingText, Error: said}
	res.find(FindingOf(said.Code))
	if e, ok := errors.AsType[*Error](err); ok {
		res.Sandbox, res.Exec, res.Isolated = e.Sandbox, e.Exec, e.Isolated
	}
	return res
}

// refused gives a program that cannot be started the number of an exec, so that its result and the record name one.
func (r *Running) refused(said error) error {
	e, ok := errors.AsType[*Error](said)
	if !ok || FindingOf(e.Code) != FindingFailed {
		return said
	}
	if err := r.openRecord(); err != nil {
		return err
	}
	defer r.record.close()
	name, err := forkexec.Number(r.sb.dir)
	if err != nil {
		return said // the sandbox ends just now
	}
	return r.notStarted(&forkexec.NumberedError{Exec: name, Err: said}, said)
}

// notStarted tells of an exec that got a number and did not start, and gives what is said of it.
func (r *Running) notStarted(failure, said error) error {
	numbered, ok := errors.AsType[*forkexec.NumberedError](failure)
	if !ok {
		return said
	}
	r.Name = numbered.Exec
	res := &Result{Outcome: NotStarted, Error: &ResultError{Code: "failed"}}
	if e, ok := errors.AsType[*Error](said); ok {
		res.Error.Code = e.Code
		e.Sandbox, e.Exec, e.Isolated = r.sb.state.ID, r.Name, r.sb.state.Isolated()
	}
	res.ExitCode = ExitStatus(res.Error.Code)
	res.find(FindingOf(res.Error.Code))
	if err := r.told(res); err != nil {
		return err
	}
	return said
}
