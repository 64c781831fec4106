package container

import (
	"encoding/base64"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
)

// Outcomes of an exec, and what they are found to mean.
const (
	Exited      = "exited"
	Signaled    = "signaled"
	Timeout     = "timeout"
	NotStarted  = "not_started"
	SandboxLost = "sandbox_lost"

	FindingFailed      = "PROGRAM_FAILED"
	FindingWall        = "WALL_CLOCK_EXCEEDED"
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

	Stdout          string `json:"stdout"`
	Stderr          string `json:"stderr"`
	StdoutBytes     int64  `json:"stdout_bytes"` // of the whole stream
	StderrBytes     int64  `json:"stderr_bytes"`
	StdoutTruncated bool   `json:"stdout_truncated"`
	StderrTruncated bool   `json:"stderr_truncated"`
	Encoding        string `json:"encoding"` // of both: "utf-8", or "base64" if either is not UTF-8

	Usage    Usage        `json:"usage"`
	Warnings []string     `json:"warnings,omitempty"`
	Error    *ResultError `json:"error"`
}

// Usage is what an exec used.
type Usage struct {
	WallMS float64 `json:"wall_ms"`
	CPUMS  float64 `json:"cpu_ms"` // of every process that was waited for
	// MaxRSSBytes is the largest process' peak. It is never less than the launcher's own at the start of the exec:
	// the kernel counts the memory that a process had before it executed something else.
	MaxRSSBytes  int64 `json:"max_rss_bytes"`
	WrittenBytes int64 `json:"written_bytes"` // to block devices, as getrusage counts
	Processes    int   `json:"processes"`     // processes and threads started
}

// ResultError is why a program was not started, or its sandbox lost.
type ResultError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

const (
	exitTimeout  = 124
	exitLauncher = 125
	exitSignal   = 128
)

// judge fills in how it ended.
func (r *Result) judge(st forkexec.Status, timedOut bool) {
	r.Usage.CPUMS = ms(st.CPU)
	r.Usage.MaxRSSBytes, r.Usage.WrittenBytes, r.Usage.Processes = st.MaxRSS, st.Written, st.Tasks
	switch {
	case timedOut && (st.Lost || st.Wait.Signal() == unix.SIGKILL): // else it ended just before
		r.Outcome, r.TimedOut, r.ExitCode = Timeout, true, exitTimeout
		r.find(FindingWall)
	case st.Lost:
		r.Outcome, r.ExitCode = SandboxLost, exitLauncher
		r.find(FindingUnavailable)
		r.Error = &ResultError{Code: "sandbox_lost", Message: "the sandbox ended under the program"}
	case st.Wait.Signaled():
		name := unix.SignalName(st.Wait.Signal())
		r.Outcome, r.Signal, r.ExitCode = Signaled, &name, exitSignal+int(st.Wait.Signal())
		r.find(FindingFailed)
	default:
		r.Outcome, r.ExitCode = Exited, st.Wait.ExitStatus()
		if r.ExitCode != 0 {
			r.find(FindingFailed)
		}
	}
}

func (r *Result) find(what string) { r.Finding = &what }

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// keep takes over what was kept of the streams. Output is never required to be text.
func (r *Result) keep(stdout, stderr *keeper) {
	out, outCut := stdout.content()
	errs, errCut := stderr.content()
	r.StdoutBytes, r.StderrBytes = stdout.total, stderr.total
	r.StdoutTruncated, r.StderrTruncated = outCut, errCut
	r.Encoding = "utf-8"
	if !utf8.Valid(out) || !utf8.Valid(errs) {
		r.Encoding = "base64"
		r.Stdout, r.Stderr = base64.StdEncoding.EncodeToString(out), base64.StdEncoding.EncodeToString(errs)
		return
	}
	r.Stdout, r.Stderr = string(out), string(errs)
}
