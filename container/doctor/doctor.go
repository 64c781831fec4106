package doctor

import (
	"context"
	"slices"
)

// Statuses of a check.
const (
	OK      = "ok"
	Weaker  = "weaker"  // there is a next best, and that is what one gets
	Missing = "missing" // it is not there, or could not be tried
)

// Row is one thing that was tried on this machine, by this caller.
type Row struct {
	Name   string `json:"name"` // stable, such as "user_namespace"
	Status string `json:"status"`
	Value  string `json:"value"` // what was found
	Cost   string `json:"cost"`  // what it means for sandboxes; empty where all is well
	Fix    string `json:"fix"`   // the command that changes it; empty where all is well
	// Required is whether no sandbox can be had without.
	Required bool `json:"required"`
}

// Report is what a machine can enforce.
type Report struct {
	// Enforceable is whether the default policy was enforced in full: a program ran under it.
	Enforceable bool  `json:"enforceable"`
	Checks      []Row `json:"checks"`
	// Err is what run says instead of running a program, where it does not.
	Err error `json:"-"`
}

// Examination is what Examine needs to know of the caller.
type Examination struct {
	State string // the state directory; it need not exist
	Path  string // the variable PATH, where interpreters are looked for
}

// Examine finds out what this machine can enforce by doing it. It leaves nothing behind: what it makes are processes that
// are thrown away, a control group that nothing enters, and a sandbox whose state is in a directory of its own. On a
// delegated cgroup v2 the controllers stay enabled, as after any run with limits. It ends early with ctx.
func Examine(ctx context.Context, e Examination) *Report {
	f := gather(ctx, e)
	r := &Report{Checks: f.checks(), Err: f.trial.err}
	r.Enforceable = f.trial.enforced() && !slices.ContainsFunc(r.Checks, func(c Row) bool {
		return c.Required && c.Status == Missing
	})
	return r
}

// checks are the rows, in the order of the table.
func (f *facts) checks() []Row {
	list := []Row{f.kernelRow(), f.aroundRow()}
	list = append(list, f.needRows()...)
	list = append(list, f.callRows()...)
	list = append(list, f.limitRows()...)
	list = append(list, f.coreRow(), f.idRow(), f.portsRow(), f.stateRow(), f.binaryRow())
	list = append(list, f.interpreterRows()...)
	return append(list, f.sandboxRow())
}
