package record

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/sandboxrun/sandboxrun/fault"
)

// Options are the expected properties of a record. Empty ones are not compared.
type Options struct {
	Policy    string            // the policy's digest
	Sandbox   string            // the sandbox's id
	Head      string            // the hash of the last event
	Signature []byte            // the content of the signature's file
	Key       ed25519.PublicKey // the key that must have made it
}

// Verify reads a record to its end, or to the first bad line. The error is an error of reading; faults of the record are in the
// report.
func Verify(from io.Reader, o Options) (*Report, error) {
	v := &verifier{report: newReport(), in: bufio.NewReaderSize(from, 64<<10), head: Head{Hash: noHash()}}
	if err := v.lines(); err != nil {
		return nil, fmt.Errorf("read record: %w", err)
	}
	r := v.report
	r.Head = v.head
	v.agrees(o)
	if v.sound {
		v.complete()
	}
	r.Well = len(r.Problems) == 0
	return r, nil
}

type verifier struct {
	report *Report
	in     *bufio.Reader
	number int    // of the last line read
	head   Head   // of the last good line
	last   string // its kind
	sound  bool   // no line was tampered with

	torn     []byte // bytes that are not events, and that a crash may have torn
	tornAt   int
	tornWhat flaw
}

// flaw is what is wrong with a line.
type flaw struct{ code, message string }

func (v *verifier) problem(code string, line int, format string, args ...any) {
	v.report.Problems = append(v.report.Problems, Problem{code, line, fmt.Sprintf(format, args...)})
}

// next reads a line with its newline. It drops the rest of a line that is longer than any line of a Writer.
func (v *verifier) next() (data []byte, err error) {
	v.number++
	for {
		part, err := v.in.ReadSlice('\n')
		if len(data) <= maxLine {
			data = append(data, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return data, err
		}
	}
}

func (v *verifier) lines() error {
	for end := false; !end; {
		data, err := v.next()
		if end = errors.Is(err, io.EOF); err != nil && !end {
			return err
		}
		if len(data) == 0 {
			break
		}
		f, err := v.line(data)
		if err != nil {
			return err
		}
		if f != nil {
			v.problem(f.code, v.number, "%s", f.message)
			return nil
		}
	}
	v.sound = true
	switch { // torn bytes have no newline at their end
	case len(v.torn) == 0:
	case v.torn[len(v.torn)-1] != '\n' && v.tornWhat.code != fault.RecordEdited:
		v.noteTorn()
	default:
		v.sound = false
		v.problem(v.tornWhat.code, v.tornAt, "%s", v.tornWhat.message)
	}
	return nil
}

// line judges one line. The error is an error of reading.
func (v *verifier) line(data []byte) (*flaw, error) {
	l, err := decode(bytes.TrimSuffix(data, []byte("\n")))
	if err == nil && l.whole && (len(v.torn) == 0 || v.describesTorn(l.Torn)) {
		if len(v.torn) > 0 {
			v.noteTorn()
		} else if l.Torn != nil {
			return &flaw{fault.RecordRemoved, "it describes torn bytes before it that are missing"}, nil
		}
		f, err := v.follows(&l)
		if f == nil && err == nil {
			f = v.take(&l)
		}
		return f, err
	}
	if len(v.torn) > 0 && err == nil && l.whole || len(v.torn) > 3*maxLine {
		v.number = v.tornAt // no crash tore those bytes
		return &v.tornWhat, nil
	}
	if len(v.torn) == 0 {
		v.tornAt = v.number
		v.tornWhat = flaw{fault.RecordEdited, "it was changed: its hash is not the hash of its content"}
		if err != nil {
			v.tornWhat = flaw{fault.RecordBadJSON, fmt.Sprintf("it is not an event: %v", err)}
		}
	}
	v.torn = append(v.torn, data...)
	return nil, nil
}

// describesTorn reports whether t describes the torn bytes before an event.
func (v *verifier) describesTorn(t *Torn) bool {
	return t != nil && t.Bytes == int64(len(v.torn)) && t.SHA256 == Digest(v.torn)
}

func (v *verifier) noteTorn() {
	v.problem(fault.RecordTorn, v.tornAt, "an event was cut off by a crash or a full disk: its content is not known")
	v.report.Torn = append(v.report.Torn, Torn{Line: v.tornAt, Bytes: int64(len(v.torn)), SHA256: Digest(v.torn)})
	v.torn = nil
}

// follows judges the place of a whole line: session, number and prev.
func (v *verifier) follows(l *line) (*flaw, error) {
	if v.head.Session != "" && l.Session != v.head.Session {
		return &flaw{fault.RecordForeignLine, fmt.Sprintf("it is of another session, %q; the record is of %q", l.Session, v.head.Session)}, nil
	}
	want := v.head.Seq + 1
	switch {
	case l.Seq > want:
		found, err := v.comesLater(want)
		if err != nil {
			return nil, err
		}
		if found {
			return &flaw{fault.RecordReordered, fmt.Sprintf("event %d stands before event %d", l.Seq, want)}, nil
		}
		if l.Seq == want+1 {
			return &flaw{fault.RecordRemoved, fmt.Sprintf("event %d is missing before it", want)}, nil
		}
		return &flaw{fault.RecordRemoved, fmt.Sprintf("events %d to %d are missing before it", want, l.Seq-1)}, nil
	case l.Seq < want:
		return &flaw{fault.RecordRepeated, fmt.Sprintf("event %d occurs again", l.Seq)}, nil
	case l.Prev != v.head.Hash && want == 1:
		return &flaw{fault.RecordReplaced, "the first event follows another"}, nil
	case l.Prev != v.head.Hash:
		return &flaw{fault.RecordReplaced, "it does not follow from the line before it: one of the two was replaced"}, nil
	}
	return nil, nil
}

// comesLater reads the rest of the file and reports whether the event with this number is there.
func (v *verifier) comesLater(seq uint64) (bool, error) {
	at := v.number
	defer func() { v.number = at }()
	for {
		data, err := v.next()
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if l, e := decode(bytes.TrimSuffix(data, []byte("\n"))); e == nil && l.Seq == seq {
			return true, nil
		}
		if err != nil {
			return false, nil
		}
	}
}

// take adds a good line to the report, unless its event is wrong or in a wrong place.
func (v *verifier) take(l *line) *flaw {
	e := newEvent(l.Event)
	switch {
	case e == nil:
		return &flaw{fault.RecordUnknownEvent, fmt.Sprintf("there is no event %q", l.Event)}
	case v.last == "" && l.Event != KindSession:
		return &flaw{fault.RecordOrder, fmt.Sprintf("the record begins with %s, not with %s", l.Event, KindSession)}
	case v.last == KindEnd:
		return &flaw{fault.RecordOrder, fmt.Sprintf("%s stands after the end", l.Event)}
	case v.last != "" && l.Event == KindSession:
		return &flaw{fault.RecordOrder, fmt.Sprintf("%s stands in the middle", l.Event)}
	}
	if s, ok := e.(*Session); ok {
		var f struct {
			Format int `json:"format"`
		}
		if err := json.Unmarshal(l.data, &f); err == nil && f.Format != Format {
			return &flaw{fault.RecordFormat, fmt.Sprintf("the record has format %d; this version reads format %d", f.Format, Format)}
		}
		s.Format = Format
	}
	if err := json.Unmarshal(l.data, e); err != nil {
		return &flaw{fault.RecordBadJSON, fmt.Sprintf("it is not a valid %s: %v", l.Event, err)}
	}
	if why := v.report.take(e); why != "" {
		return &flaw{fault.RecordBadJSON, fmt.Sprintf("it is not a valid %s: %s", l.Event, why)}
	}
	v.head, v.last = Head{l.Session, l.Seq, l.hash}, l.Event
	v.report.Events++
	if v.report.First.IsZero() {
		v.report.First = l.Time.Time
	}
	v.report.Last = l.Time.Time
	return nil
}

// agrees compares the record with the expected properties.
func (v *verifier) agrees(o Options) {
	r := v.report
	if s := r.Session; s != nil {
		if o.Policy != "" && s.PolicyDigest != o.Policy {
			v.problem(fault.RecordWrongPolicy, 1, "the sandbox had another policy: %s with digest %s, not %s", s.PolicyFile, s.PolicyDigest, o.Policy)
		}
		if o.Sandbox != "" && s.Sandbox != o.Sandbox {
			v.problem(fault.RecordSwapped, 1, "it is the record of another sandbox, %q", s.Sandbox)
		}
	}
	if v.sound && o.Head != "" && !strings.EqualFold(o.Head, v.head.Hash) {
		v.problem(fault.RecordCut, 0, "its last event is not the expected one: the end was cut off, lines were added, or it is another record")
	}
	v.signed(o)
}

func (v *verifier) signed(o Options) {
	r := v.report
	switch {
	case o.Key == nil && len(o.Signature) > 0:
		r.Signature = SignatureUnchecked
		return
	case o.Key == nil:
		return
	case len(o.Signature) == 0:
		v.problem(fault.RecordNotSigned, 0, "it has no signature")
		return
	}
	r.Signature = SignatureBad
	signed, err := readSignature(o.Signature, o.Key)
	switch {
	case err != nil:
		v.problem(fault.RecordBadSignature, 0, "the signature is not good: %v", err)
	case !v.sound:
	case signed.Session != v.head.Session:
		v.problem(fault.RecordSwapped, 0, "the signature is of another session, %q; the record is of %q", signed.Session, v.head.Session)
	case signed.Seq > v.head.Seq:
		v.problem(fault.RecordCut, 0, "the end was cut off: %d events were signed, and %d are there", signed.Seq, v.head.Seq)
	case signed.Seq < v.head.Seq:
		v.problem(fault.RecordGrown, 0, "%d events were signed, and %d are there", signed.Seq, v.head.Seq)
	case signed != v.head:
		v.problem(fault.RecordBadSignature, 0, "the record was written anew: it has as many events as were signed, and others")
	default:
		r.Signature = SignatureGood
	}
}

// complete adds the problems of the sandbox that an intact record reports.
func (v *verifier) complete() {
	r := v.report
	if r.Events == 0 {
		v.problem(fault.RecordEmpty, 0, "there is no event in it")
		return
	}
	for _, c := range r.Broken {
		v.problem(fault.CheckBroken, 0, "%s: %s does not hold: %s", c.Name, c.What, c.Why)
	}
	if r.End == nil {
		v.problem(fault.RecordUnfinished, 0, "it has no end: the sandbox still exists, its launcher was killed, or the end was cut off")
		return
	}
	if missing := r.missingRuns(); len(missing) > 0 {
		names := make([]string, len(missing))
		for i, n := range missing {
			names[i] = fmt.Sprintf("e%06d", n)
		}
		v.problem(fault.RecordUntold, 0, "the outcomes of these execs are missing: %s", strings.Join(names, " "))
	}
	if len(r.End.Leftovers) > 0 {
		v.problem(fault.SandboxLeftovers, 0, "the sandbox left these paths on the host: %q", r.End.Leftovers)
	}
	for _, o := range r.End.Orphans {
		v.problem(fault.SandboxOrphans, 0, "process %d (%s) is left over", o.PID, o.Command)
	}
}

// execNumber is the number in an exec's name.
func execNumber(name string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, "e")
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, ok && err == nil
}
