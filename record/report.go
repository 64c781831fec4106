package record

import (
	"slices"
	"time"
)

// Codes of problems. The first ones say that somebody has tampered with the record, or that it is another.
const (
	CodeBadJSON      = "record_bad_json"
	CodeEdited       = "record_edited"       // a line's hash is not that of its content
	CodeRemoved      = "record_removed"      // lines are missing before one
	CodeReordered    = "record_reordered"    // a line stands before one that it came after
	CodeRepeated     = "record_repeated"     // a line is there twice
	CodeReplaced     = "record_replaced"     // a line does not follow from the one before it
	CodeForeignLine  = "record_foreign_line" // a line of another record
	CodeUnknownEvent = "record_unknown_event"
	CodeOrder        = "record_order"   // an event stands where it cannot
	CodeCut          = "record_cut"     // the end is missing that was signed, or is expected
	CodeGrown        = "record_grown"   // lines were added after that
	CodeSwapped      = "record_swapped" // it is the record of another sandbox or session
	CodeWrongPolicy  = "record_wrong_policy"
	CodeBadSignature = "record_bad_signature"
	CodeNotSigned    = "record_not_signed"
	CodeFormat       = "record_format" // another version has written it

	CodeEmpty      = "record_empty"
	CodeTorn       = "record_torn"       // a crash or a full disk has cut an event off
	CodeUnfinished = "record_unfinished" // it has no end
	CodeUntold     = "record_untold"     // something ran, and how it ended is not told

	CodeBroken  = "check_broken"
	CodeLitter  = "sandbox_litter"
	CodeOrphans = "sandbox_orphans"
)

// Problem is why a record, or what it tells, is not well.
type Problem struct {
	Code    string `json:"code"`
	Line    int    `json:"line,omitempty"` // where there is one; the first is 1
	Message string `json:"message"`
}

// What is known of a signature.
const (
	SignatureNone      = "none"
	SignatureUnchecked = "unchecked" // there is one, and no key to check it with
	SignatureGood      = "good"
	SignatureBad       = "bad"
)

// Report is what a record says, and whether it is to be believed. After a line that somebody has tampered with nothing
// more is read.
type Report struct {
	Well      bool      `json:"well"`     // there is no problem
	Problems  []Problem `json:"problems"` // of the file first
	Events    int       `json:"events"`
	Head      Head      `json:"head"` // the last event that is to be believed
	Signature string    `json:"signature"`
	Finished  bool      `json:"finished"` // it has its end
	First     time.Time `json:"first,omitzero"`
	Last      time.Time `json:"last,omitzero"`

	Session *Session `json:"session"` // nil: the record does not even begin
	// Claims by what became of them.
	Held      []Check    `json:"held"`
	Broken    []Check    `json:"broken"`
	NotTested []Check    `json:"not_tested"`
	Weaker    []Weakness `json:"weaker"`
	// Unverified are limits that nobody has read back.
	Unverified []Limit        `json:"unverified"`
	Runs       []RunReport    `json:"runs"`
	Network    map[string]int `json:"network"` // how many connections, by verdict
	Torn       []Torn         `json:"torn"`
	End        *End           `json:"end"`
}

// RunReport is how an exec has ended.
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

// take adds what an event says. It says why an event is none of its kind.
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

// untold are the execs of which the record does not tell, by their numbers.
func (r *Report) untold() []uint64 {
	var told []uint64
	for _, run := range r.Runs {
		if n, ok := execNumber(run.Exec); ok {
			told = append(told, n)
		}
	}
	slices.Sort(told)
	last := r.End.Execs
	if len(told) > 0 {
		last = max(last, told[len(told)-1])
	}
	const most = 100 // are named
	var missing []uint64
	for n, i := uint64(1), 0; n <= last && len(missing) < most; n++ {
		for i < len(told) && told[i] < n {
			i++
		}
		if i == len(told) || told[i] != n {
			missing = append(missing, n)
		}
	}
	return missing
}
