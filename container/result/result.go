package result

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
	"github.com/sandboxrun/sandboxrun/transfer"
)

// Outcomes of an exec, and what they are found to mean.
const (
	Exited         = "exited"
	Signaled       = "signaled"
	Timeout        = "timeout"
	IdleTimeout    = "idle_timeout"
	CPUExceeded    = "cpu_exceeded"
	MemoryExceeded = "memory_exceeded"
	PidsExceeded   = "pids_exceeded"
	DiskExceeded   = "disk_exceeded"
	FileExceeded   = "file_exceeded"
	OutputExceeded = "output_exceeded"
	StepsExceeded  = "steps_exceeded"
	Cancelled      = "cancelled"
	NotStarted     = "not_started"
	SandboxLost    = "sandbox_lost"
	StillRunning   = "running" // it has not ended

	FindingFailed      = "PROGRAM_FAILED"
	FindingWall        = "WALL_CLOCK_EXCEEDED"
	FindingCPU         = "CPU_TIME_EXCEEDED"
	FindingMemory      = "MEMORY_EXCEEDED"
	FindingPids        = "PIDS_EXCEEDED"
	FindingDisk        = "DISK_EXCEEDED"
	FindingOutput      = "OUTPUT_EXCEEDED"
	FindingSteps       = "STEP_BUDGET_EXCEEDED"
	FindingFile        = "FILE_SIZE_EXCEEDED"
	FindingCancelled   = "CANCELLED"
	FindingUnavailable = "SANDBOX_UNAVAILABLE"
)

// Result is how an exec ended, for programs to read. The names are fixed.
type Result struct {
	Sandbox  string  `json:"sandbox"`
	Exec     string  `json:"exec"`
	Outcome  string  `json:"outcome"`
	Finding  *string `json:"finding"`
	ExitCode int     `json:"exit_code"` // as a shell would say it: 128 + n for a signal
	Signal   *string `json:"signal"`
	TimedOut bool    `json:"timed_out"`
	Killed   bool    `json:"-"` // a limit ended it, not the program itself
	Isolated bool    `json:"isolated"`

	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// The bytes of the whole stream. Where the output is kept values are taken out of that (env.redact).
	StdoutBytes     int64 `json:"stdout_bytes"`
	StderrBytes     int64 `json:"stderr_bytes"`
	StdoutTruncated bool  `json:"stdout_truncated"`
	StderrTruncated bool  `json:"stderr_truncated"`
	// Of Stdout and Stderr: "utf-8", always. A stream that was not has U+FFFD for each part that is not, and all of its
	// bytes in StdoutBase64 or StderrBase64.
	Encoding     string `json:"encoding"`
	StdoutBase64 string `json:"stdout_base64,omitempty"`
	StderrBase64 string `json:"stderr_base64,omitempty"`
	// The caller's standard output and error are one file, so both were one pipe, and are counted as standard output.
	Merged bool `json:"merged,omitempty"`

	Answer    *Answer            `json:"answer,omitempty"`    // see Carried.Answer
	Collected []Collected        `json:"collected,omitempty"` // see Carried.Collect
	Dropped   []transfer.Dropped `json:"dropped,omitempty"`   // what was not collected as it was

	// Whether the program has got an interpreter that was started ahead (Request.Warm), and why not; nil: it was not to.
	Warm     *bool        `json:"warm,omitempty"`
	WarmWhy  string       `json:"warm_why,omitempty"`
	View     *View        `json:"view,omitempty"` // what the exec alone saw, or did not see
	Usage    Usage        `json:"usage"`
	Limits   []spec.Limit `json:"limits,omitempty"`
	Warnings []string     `json:"warnings,omitempty"`
	Error    *Error       `json:"error"`
}

// Collected is a file that was read.
type Collected struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	Text   string `json:"text"`
	Base64 string `json:"base64,omitempty"` // all bytes, where they are no text
	To     string `json:"to,omitempty"`     // where it was written to
	Error  *Error `json:"error,omitempty"`
}

// Answer is what a program has written to descriptor 3.
type Answer struct {
	Bytes     int64  `json:"bytes"` // that it wrote, kept or not
	Truncated bool   `json:"truncated"`
	Text      string `json:"text"`
	Base64    string `json:"base64,omitempty"` // all bytes, where they are no text
}

// View is what an exec alone sees besides what its sandbox shows, or does not see. Paths are the host's, and those of a view of the policy are
// among them.
type View struct {
	Name string   `json:"name,omitempty"` // of a view of the policy
	Read []string `json:"read,omitempty"`
	Bind []string `json:"bind,omitempty"` // SOURCE:TARGET
	Deny []string `json:"deny,omitempty"`
}

// NewView is a view with a policy's name for it, or without.
func NewView(name string, v policy.View) *View {
	paths := func(list []rootfs.Grant) (out []string) {
		for _, g := range list {
			out = append(out, g.Path)
		}
		return out
	}
	view := &View{Name: name, Read: paths(v.Read), Deny: paths(v.Deny)}
	for _, b := range v.Binds {
		view.Bind = append(view.Bind, b.Source+":"+b.Target)
	}
	return view
}

// Redacted is the view with other texts.
func (v *View) Redacted(texts func([]string) []string) *View {
	if v == nil {
		return nil
	}
	return &View{v.Name, texts(v.Read), texts(v.Bind), texts(v.Deny)}
}

// Usage is what an exec used.
type Usage struct {
	WallMS float64 `json:"wall_ms"`
	CPUMS  float64 `json:"cpu_ms"` // of every process that was waited for
	// MaxRSSBytes is the largest process' peak, or that of all processes together as it was seen, which is looked for where
	// memory is limited. A program that stays below what the launcher had when it started the exec is known by looks, or
	// estimated by its page faults.
	MaxRSSBytes  int64 `json:"max_rss_bytes"`
	WrittenBytes int64 `json:"written_bytes"`   // to block devices, as getrusage counts
	Processes    int   `json:"processes"`       // processes and threads started
	Steps        int64 `json:"steps,omitempty"` // that the guard has counted
}

// Error is why a program was not started, or its sandbox lost.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

const (
	exitTimeout = 124
	exitSignal  = 128
)

// ending is what it means that we have ended an exec.
type ending struct {
	why              forkexec.Why
	outcome, finding string
	status           int
}

// endings are in the order in which they are looked for. What kills with a status of its own is a row of the table in
// interface.md; the others leave the program's, which is that of a program that was killed.
func endings() []ending {
	const killed = exitSignal + int(unix.SIGKILL)
	return []ending{
		{forkexec.ByWall, Timeout, FindingWall, exitTimeout},
		{forkexec.ByIdle, IdleTimeout, FindingWall, exitTimeout},
		{forkexec.ByCPU, CPUExceeded, FindingCPU, exitSignal + int(unix.SIGXCPU)},
		{forkexec.ByMemory, MemoryExceeded, FindingMemory, killed},
		{forkexec.ByPids, PidsExceeded, FindingPids, killed},
		{forkexec.ByCheck, DiskExceeded, FindingDisk, killed},
		{forkexec.ByCancel, Cancelled, FindingCancelled, killed},
	}
}

// Judge fills in how it ended. full is whether its writable grants hold more than allowed.
func (r *Result) Judge(st forkexec.Status, l policy.Limits, full bool) {
	r.Usage.CPUMS = Milliseconds(st.CPU)
	r.Usage.WrittenBytes, r.Usage.Processes = st.Written, st.Tasks
	r.Usage.MaxRSSBytes = max(st.MaxRSS, st.MemoryPeak)
	r.Ended(st)
	switch e := ended(st, l); {
	case e != nil:
		r.Outcome, r.ExitCode, r.TimedOut = e.outcome, e.status, e.status == exitTimeout
		r.Killed, r.Signal, r.Error = true, nil, nil
		r.SetFinding(e.finding)
	case st.Lost:
	case fileExceeded(st, l):
		r.Outcome = FileExceeded
		r.SetFinding(FindingFile)
	case full:
		r.Outcome = DiskExceeded
		r.SetFinding(FindingDisk)
	case st.OutOfPids, reached(st, l.Pids):
		r.Outcome = PidsExceeded
		r.SetFinding(FindingPids)
	}
}

// reached reports whether a program has met its limit of processes where nothing counts those that were refused: there were
// so many when it ended, or at some time before it failed. One that has just enough and does well has not.
func reached(st forkexec.Status, pids int64) bool {
	if pids <= 1 || st.TasksPeak == 0 {
		return false
	}
	failed := st.Wait.ExitStatus() != 0
	return int64(st.Left)+1 >= pids || failed && int64(st.TasksPeak) >= pids
}

// ended says by which limit the exec was ended, if it was.
func ended(st forkexec.Status, l policy.Limits) *ending {
	why := st.Why
	killed := st.Lost || st.Wait.Signal() == unix.SIGKILL // else it ended by itself just before
	if !killed {
		why = forkexec.ByItself
	}
	switch {
	case st.OutOfMemory:
		why = forkexec.ByMemory
	case !st.Lost && st.Wait.Signal() == unix.SIGXCPU && l.CPU > 0 && st.CPU >= l.CPU:
		why = forkexec.ByCPU // the kernel was quicker
	}
	for _, e := range endings() {
		if e.why == why {
			return &e
		}
	}
	return nil
}

// fileExceeded reports whether the program wanted a file to be larger than allowed, and ended by it: itself, or a command of
// the shell that it is, which shells tell by 128 + n.
func fileExceeded(st forkexec.Status, l policy.Limits) bool {
	return l.File > 0 && (st.Wait.Signal() == unix.SIGXFSZ || st.Wait.ExitStatus() == exitSignal+int(unix.SIGXFSZ))
}

// Ended fills in how the program ended by itself.
func (r *Result) Ended(st forkexec.Status) {
	switch {
	case st.Lost:
		r.Outcome, r.ExitCode = SandboxLost, fault.ExitLauncher
		r.SetFinding(FindingUnavailable)
		r.Error = &Error{Code: fault.SandboxLost, Message: "the sandbox ended under the program"}
	case st.Wait.Signaled():
		name := signalName(st.Wait.Signal())
		r.Outcome, r.Signal, r.ExitCode = Signaled, &name, exitSignal+int(st.Wait.Signal())
		r.SetFinding(FindingFailed)
	default:
		r.Outcome, r.ExitCode = Exited, st.Wait.ExitStatus()
		if r.ExitCode != 0 {
			r.SetFinding(FindingFailed)
		}
	}
}

// signalName names real-time signals as kill(1) does. The C library keeps the first two for itself.
func signalName(s unix.Signal) string {
	const first, last = 34, 64
	switch name := unix.SignalName(s); {
	case name != "":
		return name
	case s == first:
		return "SIGRTMIN"
	case s > first && s < last:
		return fmt.Sprintf("SIGRTMIN+%d", int(s)-first)
	case s == last:
		return "SIGRTMAX"
	default:
		return fmt.Sprintf("SIG%d", int(s))
	}
}

// Guarded fills in what the guard in the interpreter says.
func (r *Result) Guarded(steps int64, exceeded bool) {
	r.Usage.Steps = steps
	if exceeded {
		r.Outcome, r.Killed = StepsExceeded, true
		r.SetFinding(FindingSteps)
	}
}

// NotStarted fills in that the program has not run, because the launcher or its guard could not start it.
func (r *Result) NotStarted(err error) {
	r.Error = ErrorOf(err)
	r.Outcome, r.ExitCode = NotStarted, fault.Status(r.Error.Code)
	r.SetFinding(FindingOf(r.Error.Code))
}

// SetFinding says what the outcome means.
func (r *Result) SetFinding(what string) { r.Finding = &what }

// Milliseconds are a duration in the form of a result: with three decimals at most.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Kept is what was kept of a stream.
type Kept interface {
	// Content is what was kept, and whether something is missing from it.
	Content() ([]byte, bool)
	// Total counts the bytes of the whole stream.
	Total() int64
}

// Keep takes over what was kept of the streams. Output is never required to be text.
func (r *Result) Keep(stdout, stderr Kept) {
	out, outCut := stdout.Content()
	errs, errCut := stderr.Content()
	r.StdoutBytes, r.StderrBytes = stdout.Total(), stderr.Total()
	r.StdoutTruncated, r.StderrTruncated = outCut, errCut
	r.Encoding = Encoding
	r.Stdout, r.StdoutBase64 = AsText(out)
	r.Stderr, r.StderrBase64 = AsText(errs)
}

// Encode writes a result as one line of JSON.
func (r *Result) Encode() ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(r)
	return buf.Bytes(), err
}

// ErrorOf is what a result says of an error.
func ErrorOf(err error) *Error {
	if e, ok := err.(*fault.Error); ok { //nolint:errorlint // only one that says all by itself
		return &Error{Code: e.Code, Message: e.Error(), Hint: e.Hint}
	}
	return &Error{Code: fault.Failed, Message: err.Error()}
}

// Encoding is what Result.Encoding is.
const Encoding = "utf-8"

// AsText is output as text that can be read, and where it is not UTF-8 all of its bytes as well (docs/decisions/0013).
func AsText(b []byte) (string, string) {
	if utf8.Valid(b) {
		return string(b), ""
	}
	return strings.ToValidUTF8(string(b), "\ufffd"), base64.StdEncoding.EncodeToString(b)
}
