package record

import (
	"slices"
	"time"
)

// Problem is a fault of a record, or a fault of the sandbox that the record reports.
type Problem struct {
	Code    string `json:"code"`
	Line    int    `json:"line,omitempty"` // counts from 1; 0: the problem belongs to no line
	Message string `json:"message"`
}

// States of a signature.
const (
	SignatureNone      = "none"
	SignatureUnchecked = "unchecked" // there is a signature, and no key to check it
	SignatureGood      = "good"
	SignatureBad       = "bad"
)

// Report is the content of a record and its problems. Verify stops at the first line that somebody tampered with.
type Report struct {
	Well      bool      `json:"well"`     // there are no problems
	Problems  []Problem `json:"problems"` // those of the file first
	Events    int       `json:"events"`
	Head      Head      `json:"head"` // the last good event
	Signature string    `json:"signature"`
	Finished  bool      `json:"finished"` // the record has its end
	First     time.Time `json:"first,omitzero"`
	Last      time.Time `json:"last,omitzero"`

	Session *Session `json:"session"` // nil: the record has no first event
	// Checks by result.
	Held      []Check    `json:"held"`
	Broken    []Check    `json:"broken"`
	NotTested []Check    `json:"not_tested"`
	Weaker    []Weakness `json:"weaker"`
	// Unverified are limits that the launcher did not read back.
	Unverified []Limit        `json:"unverified"`
	Runs       []RunReport    `json:"runs"`
	Network    map[string]int `json:"network"` // number of connections by verdict
	Torn       []Torn         `json:"torn"`
	End        *End           `json:"end"`
}

// RunReport is the outcome of an exec.
type RunReport struct {
	Exec     string  `json:"exec"`
	Outcome  string  `json:"outcome"`
	Finding  *string `json:"finding"`
	ExitCode int     `json:"exit_code"`
}

func newReport() *Report {
	return &Report{
		Problems: []Problem{}, Signature: SignatureNone,
		Held: []Check{}, Broken: []Check{}, NotTested: []Check{}, Weaker: []Weakness{}, Unverified: []Limit{},
		Runs: []RunReport{}, Network: map[string]int{}, Torn: []Torn{},
	}
}

// take adds an event to the report. It returns why the event is not valid, or "".
func (r *Report) take(e Event) string {
	switch e := e.(type) {
	case *Session:
		r.Session = e
		r.Weaker = append(r.Weaker, e.Weaker...)
		for _, l := range e.Limits {
			if !l.Verified {
				r.Unverified = append(r.Unverified, l)
			}
		}
	case *Check:
		switch e.Result {
		case Held:
			r.Held = append(r.Held, *e)
		case Broken:
			r.Broken = append(r.Broken, *e)
		case NotTested:
			r.NotTested = append(r.NotTested, *e)
		default:
			return "a check has no such result"
		}
	case *Run:
		r.Runs = append(r.Runs, RunReport{e.Exec, e.Outcome, e.Finding, e.ExitCode})
	case *Network:
		r.Network[e.Verdict]++
	case *End:
		r.End, r.Finished = e, true
	}
	return ""
}

// missingRuns are the numbers of the execs that have no Run in the record.
func (r *Report) missingRuns() []uint64 {
	var recorded []uint64
	for _, run := range r.Runs {
		if n, ok := execNumber(run.Exec); ok {
			recorded = append(recorded, n)
		}
	}
	slices.Sort(recorded)
	last := r.End.Execs
	if len(recorded) > 0 {
		last = max(last, recorded[len(recorded)-1])
	}
	const most = 100 // names in a message
	var missing []uint64
	for n, i := uint64(1), 0; n <= last && len(missing) < most; n++ {
		for i < len(recorded) && recorded[i] < n {
			i++
		}
		if i == len(recorded) || recorded[i] != n {
			missing = append(missing, n)
		}
	}
	return missing
}
