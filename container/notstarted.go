package container

import (
	"errors"

	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// refused gives a program that cannot be started the number of an exec, so that its result and the record name one.
func (r *Running) refused(said error) error {
	e, ok := errors.AsType[*Error](said)
	if !ok || result.FindingOf(e.Code) != result.FindingFailed {
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
	res := &result.Result{Outcome: result.NotStarted, Error: &result.Error{Code: fault.Failed}}
	if e, ok := errors.AsType[*Error](said); ok {
		res.Error.Code = e.Code
		e.Sandbox, e.Exec, e.Isolated = r.sb.state.ID, r.Name, r.sb.state.Isolated()
	}
	res.ExitCode = fault.Status(res.Error.Code)
	res.SetFinding(result.FindingOf(res.Error.Code))
	if err := r.told(res); err != nil {
		return err
	}
	return said
}
