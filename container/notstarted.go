package container

import (
	"errors"

	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// refused gives a program that cannot be started the number of an exec, so that its result and the record name one.
func (r *Running) refused(cause error) error {
	if err := r.sb.ended(); err != nil {
		return err
	}
	e, ok := errors.AsType[*Error](cause)
	if !ok || result.FindingOf(e.Code) != result.FindingFailed {
		return cause
	}
	if err := r.openRecord(); err != nil {
		return err
	}
	defer r.record.close()
	name, err := forkexec.Number(r.sb.dir)
	if err != nil {
		return cause // the sandbox ends just now
	}
	return r.notStarted(&forkexec.NumberedError{Exec: name, Err: cause}, cause)
}

// notStarted writes the event of an exec that got a number and did not start. It returns the cause.
func (r *Running) notStarted(failure, cause error) error {
	numbered, ok := errors.AsType[*forkexec.NumberedError](failure)
	if !ok {
		return cause
	}
	r.Name = numbered.Exec
	res := &result.Result{Outcome: result.NotStarted, Error: &result.Error{Code: fault.Failed}}
	if e, ok := errors.AsType[*Error](cause); ok {
		res.Error.Code = e.Code
		e.Sandbox, e.Exec, e.Isolated = r.sb.state.ID, r.Name, r.sb.state.Isolated()
	}
	res.ExitCode = fault.Status(res.Error.Code)
	res.SetFinding(result.FindingOf(res.Error.Code))
	if err := r.recordResult(res); err != nil {
		return err
	}
	return cause
}
