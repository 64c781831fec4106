package record

import (
	"errors"

	"github.com/sandboxrun/sandboxrun/fault"
)

// redactedError is an error whose text is another.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }

func (e *redactedError) Unwrap() error { return e.err }

// Error takes values out of what an error says. What it is stays.
func (r *Redactor) Error(err error) error {
	text := r.String(err.Error())
	e, ok := errors.AsType[*fault.Error](err)
	hint := ""
	if ok {
		hint = r.String(e.Hint)
	}
	switch {
	case text == err.Error() && (!ok || hint == e.Hint):
		return err
	case !ok:
		return &redactedError{text, err}
	}
	clean := *e
	clean.Hint, clean.Err = hint, &redactedError{text, err}
	return &clean
}
