package container

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/fault"
	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/transfer"
)

// Carried is what an exec brings with it and takes away.
type Carried struct {
	Put     []Put
	Fresh   []string  // directories that are empty for this exec and gone after it: inside, absolute, or relative to Dir, or below "~"
	Collect []Collect // what is read when all of the exec has ended
	// Answer gives the program descriptor 3, and $SANDBOXRUN_RESULT with that number: what it writes there is Result.Answer.
	Answer bool
	// KillOnOutput ends the exec when one of its streams is larger than limits.output.
	KillOnOutput bool
}

// Collect is a file, a directory or a pattern (path.Match in each part) below the working directory.
type Collect struct {
	Path string
	Max  int64  // bytes together; 0: transfer.DefaultMax
	To   string // a new file or directory of the host, absolute, instead of the result; Path is then no pattern
}

// Collected is a file that was read.
type Collected struct {
	Path   string       `json:"path"`
	Bytes  int64        `json:"bytes"`
	Text   string       `json:"text"`
	Base64 string       `json:"base64,omitempty"` // all bytes, where they are no text
	To     string       `json:"to,omitempty"`     // where it was written to
	Error  *ResultError `json:"error,omitempty"`
}

// Answer is what a program has written to descriptor 3.
type Answer struct {
	Bytes     int64  `json:"bytes"` // that it wrote, kept or not
	Truncated bool   `json:"truncated"`
	Text      string `json:"text"`
	Base64    string `json:"base64,omitempty"` // all bytes, where they are no text
}

// AnswerMax is how much is kept of an answer, in bytes.
const AnswerMax = 1 << 20

const answerFD = "3"

// answerKeeper keeps the beginning.
type answerKeeper struct {
	mu    sync.Mutex
	data  []byte
	total int64
}

func (k *answerKeeper) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.total += int64(len(p))
	k.data = append(k.data, p[:min(len(p), AnswerMax-len(k.data))]...)
	return len(p), nil
}

// carriedBy is what an exec that runs carries.
type carriedBy struct {
	collect  []Collect
	view     *forkexec.View
	answer   *answerKeeper
	overflow atomic.Bool // it was ended for its output
}

// carry covers what is denied and puts what the exec brings into its command. What is fresh hides covers below it, so it comes last.
func (r *Running) carry(req Request, cmd *forkexec.Command, in lookup.Root) (err error) {
	if r.lookouts, err = lookOut(r.sb.state.Launch.Watch, in); err != nil {
		return err
	}
	cmd.Mounts = append(cmd.Mounts, r.lookouts.cover()...)
	r.warnings = r.lookouts.warnings()
	if cmd.Puts, err = plainPuts(req.Put); err != nil {
		return err
	}
	for _, p := range cmd.Puts {
		if l := r.limits.File; l > 0 && int64(len(p.Data)) > l {
			return fail(codePut, "limits.file of the policy says how large a file may be", "put %q: it is larger than %d bytes", p.Name, l)
		}
	}
	fresh, err := r.sb.freshMounts(req, cmd.Dir, in)
	if err != nil {
		return err
	}
	for _, m := range fresh {
		if r.limits.watchMemory {
			cmd.Limits.Tmpfs = append(slices.Clip(cmd.Limits.Tmpfs), m.Target)
		}
	}
	cmd.Mounts = append(cmd.Mounts, fresh...)
	for _, c := range req.Collect {
		if _, err := transfer.Clean(c.Path); err != nil {
			return transferError("collect", err)
		}
	}
	r.carried.collect = req.Collect
	cmd.KeepView = len(req.Collect) > 0
	return nil
}

// putsProgram says whether the program is a file that is put there.
func putsProgram(req Request, name, dir string) (string, bool) {
	if !slices.Contains([]byte(name), '/') {
		return "", false
	}
	if !path.IsAbs(name) {
		name = path.Join(dir, name)
	}
	return name, slices.ContainsFunc(req.Put, func(p Put) bool { return path.Join(dir, p.Path) == path.Clean(name) })
}

// connectAnswer makes descriptor 3.
func (r *Running) connectAnswer(s *streams, req Request, cmd *forkexec.Command) error {
	if !req.Answer {
		return nil
	}
	inner, outer, err := s.pipe(false, cmd.UID, cmd.GID)
	if err != nil {
		return err
	}
	r.carried.answer = &answerKeeper{}
	cmd.Result = inner
	to := r.clean(r.carried.answer)
	s.add(true, func() { pump(to, outer) })
	return nil
}

// guard ends the exec when one of its streams gets too large, where that is asked for.
func (r *Running) guard(req Request, to io.Writer) io.Writer {
	if !req.KillOnOutput {
		return to
	}
	return &outputGuard{to: to, r: r, left: keptOutput(r.limits.Limits)}
}

type outputGuard struct {
	to   io.Writer
	r    *Running
	left int64
}

func (g *outputGuard) Write(p []byte) (int, error) {
	if g.left -= int64(len(p)); g.left < 0 && !g.r.carried.overflow.Swap(true) {
		_ = g.r.process.Kill()
	}
	return g.to.Write(p)
}

// overflowed makes that the outcome, where nothing else has ended the program before.
func (r *Running) overflowed(res *Result) {
	if r.carried.overflow.Load() && res.Signal != nil && *res.Signal == unix.SignalName(unix.SIGKILL) {
		res.Outcome, res.Signal, res.Killed = OutputExceeded, nil, true
		res.find(FindingOutput)
	}
}

// handOver reads what is to be collected. All processes of the exec are gone; those of others may still change what is there.
func (r *Running) handOver(res *Result) {
	if k := r.carried.answer; k != nil {
		res.Answer = &Answer{Bytes: k.total, Truncated: k.total > int64(len(k.data))}
		res.Answer.Text, res.Answer.Base64 = asText(k.data)
	}
	if r.carried.view == nil {
		return
	}
	files, err := r.sb.files(r.carried.view, r.cwd)
	r.carried.view = nil
	if err != nil {
		res.Collected = append(res.Collected, Collected{Path: ".", Error: resultError(err)})
		return
	}
	defer files.Close()
	for _, c := range r.carried.collect {
		res.collect(files, r.sb, c)
	}
}

func resultError(err error) *ResultError {
	if e, ok := err.(*fault.Error); ok { //nolint:errorlint // only one that says all by itself
		return &ResultError{Code: e.Code, Message: e.Error(), Hint: e.Hint}
	}
	return &ResultError{Code: "failed", Message: err.Error()}
}

func (r *Result) collect(files *Files, sb *Sandbox, c Collect) {
	if c.To != "" {
		r.collectTo(files, sb, c)
		return
	}
	names, err := files.Glob(c.Path)
	if err != nil {
		r.Collected = append(r.Collected, Collected{Path: c.Path, Error: resultError(transferError("collect", err))})
		return
	}
	left := cmp.Or(c.Max, transfer.DefaultMax)
	for _, name := range names {
		var m transfer.Memory
		dropped, err := files.Get(name, max(left, 1), &m)
		if err != nil {
			r.Collected = append(r.Collected, Collected{Path: name, Error: resultError(err)})
			continue
		}
		r.Dropped = append(r.Dropped, dropped...)
		for _, f := range m.Files {
			left -= int64(len(f.Data))
			r.Collected = appendFile(r.Collected, path.Join(name, f.Path), f)
		}
	}
}

func appendFile(list []Collected, name string, f transfer.File) []Collected {
	if !f.Mode.IsRegular() {
		return list // a directory is there by its files; a link says nothing in an answer
	}
	c := Collected{Path: name, Bytes: int64(len(f.Data))}
	c.Text, c.Base64 = asText(f.Data)
	return append(list, c)
}

func (r *Result) collectTo(files *Files, sb *Sandbox, c Collect) {
	done := Collected{Path: c.Path, To: c.To}
	dropped, err := sb.GetTo(files, c.Path, c.To, c.Max)
	r.Dropped = append(r.Dropped, dropped...)
	if err != nil {
		done.Error = resultError(err)
	}
	r.Collected = append(r.Collected, done)
}

// GetTo writes a file or a directory to a new place on the host.
func (sb *Sandbox) GetTo(files *Files, name, to string, limit int64) ([]transfer.Dropped, error) {
	sink, err := sb.HostSink(to)
	if err != nil {
		return nil, err
	}
	defer sink.Parent.Close()
	dropped, err := files.Get(name, limit, sink)
	if cerr := sink.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("write %q: %w", to, cerr)
	}
	return dropped, err
}
