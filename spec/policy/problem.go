package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/fault"
)

// maxProblems is the maximum number of problems in a PolicyError.
const maxProblems = 10

// Problem is one fault of a policy.
type Problem struct {
	File         string
	Line, Column int    // count from 1; columns in characters
	Key          string // "files.read"; empty if the file cannot be parsed
	Message      string
	Hint         string // what to do; may be empty
}

// String is "file:line:column: key: message"; of a flag of the command line "--flag: message".
func (p Problem) String() string {
	s := fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	if p.Line == 0 {
		s = p.File + ": "
	}
	if p.Key != "" {
		s += p.Key + ": "
	}
	return s + p.Message
}

// Error has the faults of a policy.
type Error struct {
	Problems []Problem // at least one, at most 10: file by file, in the order of their lines
	More     int       // number of further problems
}

// Error has one line a problem.
func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	for _, p := range e.Problems {
		lines = append(lines, p.String())
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.More))
	}
	return strings.Join(lines, "\n")
}

// As makes it a *fault.Error, with the hint of the first problem that has one.
func (e *Error) As(target any) bool {
	f, ok := target.(**fault.Error)
	if !ok {
		return false
	}
	*f = &fault.Error{Code: fault.PolicyInvalid, Err: e}
	if i := slices.IndexFunc(e.Problems, func(p Problem) bool { return p.Hint != "" }); i >= 0 {
		(*f).Hint = e.Problems[i].Hint
	}
	return true
}

// newError sorts problems, files in the order in which they were read, and keeps the first few.
func newError(problems []Problem, files []string) *Error {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(slices.Index(files, a.File), slices.Index(files, b.File)),
			cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
		)
	})
	n := min(len(problems), maxProblems)
	return &Error{Problems: problems[:n:n], More: len(problems) - n}
}
