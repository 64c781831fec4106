package stream

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/record"
)

// Streams join a program's standard streams to ours. A program never gets a file of ours, only the ends of pipes or of a
// terminal that were made for it: what it holds it can open again by /proc/self/fd with other rights, put into
// non-blocking mode for everybody who shares it, or type into (CVE-2017-5226).
type Streams struct {
	Ends
	process     *forkexec.Process // once it has been started
	terminal    *os.File          // the outer end of its terminal, if it has one
	stdout      *Keeper
	stderr      *Keeper
	Merged      bool // standard error goes the way of standard output
	answer      *answerKeeper
	overflow    atomic.Bool // the exec was ended for its output
	cleaned     []*record.RedactingWriter
	Warnings    []string
	inputFailed failure
	suspend     atomic.Pointer[func()] // see OnSuspend

	theirs []*os.File
	ours   []*os.File
	flows  []func()
	waits  []bool // which flows the exec's end waits for
	pumps  sync.WaitGroup
}

// Ends are where the streams of an exec come from and go to.
type Ends struct {
	Stdin  io.Reader // nil: empty
	Stdout io.Writer // nil: kept
	Stderr io.Writer
	One    bool // Stdout and Stderr are one file, so one pipe leads there
	Tty    *Size
	// TtySettings are what the terminal begins with; nil: the kernel's.
	TtySettings *unix.Termios
	Answer      bool // there is a descriptor 3

	Keep     int64            // bytes of each stream that are kept
	KillOver bool             // a stream that is larger ends the exec
	Idle     bool             // output resets the idle limit
	Files    []Files          // that the streams are written to besides
	Meters   [2]*record.Meter // of stdout and stderr; nil: there is no record
	Redactor *record.Redactor

	// Beside gives a writer for the program's output to which lines about it can be added.
	Beside func(to io.Writer, newline string) io.Writer
	// Null opens the sandbox's null device.
	Null func(mode uint64) (*os.File, error)
}

func (s *Streams) add(wait bool, flow func()) {
	s.flows = append(s.flows, flow)
	s.waits = append(s.waits, wait)
}

// CloseTheirs closes the ends that the program has got.
func (s *Streams) CloseTheirs() {
	for _, f := range s.theirs {
		f.Close()
	}
}

// CloseOurs closes the other ends, where no program was started.
func (s *Streams) CloseOurs() {
	for _, f := range s.ours {
		f.Close()
	}
}

// Start begins, when the program has been started.
func (s *Streams) Start(p *forkexec.Process) {
	s.process, s.terminal = p, p.Terminal
	for i, f := range s.flows {
		if s.waits[i] {
			s.pumps.Go(f)
		} else {
			go f()
		}
	}
}

// pipe makes a pipe whose inner end belongs to the program's user, so that it can open it by path (moby/moby#31243).
// The outer end does not block a thread of ours.
func (s *Streams) pipe(innerReads bool, uid, gid int) (inner, outer *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	in, out := fds[1], fds[0]
	if innerReads {
		in, out = out, in
	}
	if uid != 0 {
		err = unix.Fchown(in, uid, gid)
	}
	if err == nil {
		err = unix.SetNonblock(out, true)
	}
	inner, outer = os.NewFile(uintptr(in), "inner"), os.NewFile(uintptr(out), "outer")
	s.theirs, s.ours = append(s.theirs, inner), append(s.ours, outer)
	if err != nil {
		return nil, nil, fmt.Errorf("make pipe: %w", err)
	}
	return inner, outer, nil
}

// Wait waits until the program's output is complete.
func (s *Streams) Wait() { s.pumps.Wait() }

// Finish ends what the streams were kept in, and says what is wrong with it.
func (s *Streams) Finish() []string {
	for _, w := range s.cleaned {
		_ = w.Close() // what it writes to never fails
	}
	warnings := s.closeFiles()
	if s.terminal != nil {
		s.terminal.Close()
	}
	return warnings
}

// Overflowed reports whether the exec was ended since one of its streams was too large.
func (s *Streams) Overflowed() bool { return s.overflow.Load() }

// Failed is why the caller's input could not be read to its end.
func (s *Streams) Failed() error { return s.inputFailed.get() }

// Kept is what was kept of standard output and standard error.
func (s *Streams) Kept() (stdout, stderr *Keeper) { return s.stdout, s.stderr }

// Ended are those of an exec that has ended.
func Ended(stdout, stderr *Keeper, merged bool, inputFailed error) *Streams {
	s := &Streams{stdout: stdout, stderr: stderr, Merged: merged}
	s.inputFailed.set(inputFailed)
	return s
}

// Connect makes the streams of an exec, and gives the program's ends to its command.
func Connect(e Ends, cmd *forkexec.Command) (*Streams, error) {
	s := &Streams{Ends: e, stdout: NewKeeper(e.Keep), stderr: NewKeeper(e.Keep)}
	for _, p := range e.Files {
		s.stdout.files, s.stderr.files = append(s.stdout.files, p[0]), append(s.stderr.files, p[1])
	}
	var err error
	if e.Tty != nil {
		s.connectTerminal(cmd)
	} else {
		err = s.connectPipes(cmd)
	}
	if err == nil {
		err = s.connectAnswer(cmd)
	}
	if err != nil {
		s.CloseTheirs()
		s.CloseOurs()
		return nil, err
	}
	return s, nil
}

func (s *Streams) connectPipes(cmd *forkexec.Command) error {
	var err error
	if cmd.Stdio[0], err = s.input(s.Stdin, cmd.UID, cmd.GID); err != nil {
		return err
	}
	outputs := []struct {
		to      io.Writer
		kept    *Keeper
		newline string // of lines about refusals; "" where they are not to go
	}{{s.Stdout, s.stdout, ""}, {s.Stderr, s.stderr, "\n"}}
	if s.One {
		outputs[0].newline = "\n"
	}
	for i, o := range outputs {
		if i == 1 && s.One {
			cmd.Stdio[2] = cmd.Stdio[1] // one pipe keeps the order in which both are written
			s.stderr.away, s.Merged = true, true
			return nil
		}
		if _, gone := o.to.(Closed); gone {
			o.kept.away = true
			if cmd.Stdio[i+1], err = s.null(unix.O_RDONLY); err != nil {
				return err
			}
			continue
		}
		inner, outer, err := s.pipe(false, cmd.UID, cmd.GID)
		if err != nil {
			return err
		}
		cmd.Stdio[i+1] = inner
		to := s.guard(s.Beside(s.output(o.to, o.kept), o.newline))
		s.add(true, func() { pump(to, outer) })
	}
	return nil
}

// Closed is an output of a caller's who has none: the descriptor is closed. A program that writes there gets EBADF, as
// it would be without us.
type Closed struct{}

// Write fails.
func (Closed) Write([]byte) (int, error) { return 0, unix.EBADF }

// null is the null device for the program: to be read, to be written, or both; what it is not opened for fails.
func (s *Streams) null(mode uint64) (*os.File, error) {
	null, err := s.Null(mode)
	if err != nil {
		return nil, err
	}
	s.theirs = append(s.theirs, null)
	return null, nil
}

// output is where a stream goes: to a writer, or it is kept.
func (s *Streams) output(to io.Writer, kept *Keeper) io.Writer {
	also := s.also(kept)
	switch {
	case to != nil && also != nil:
		kept.away = true
		to = &copier{&counter{to, kept}, s.clean(also)}
	case to != nil:
		kept.away = true
		to = &counter{to, kept}
	case also != nil:
		to = s.clean(&copier{kept, also})
	default:
		to = s.clean(kept)
	}
	if s.Idle {
		return &heard{to, s}
	}
	return to
}

// also is where a stream is kept besides: in files, and in the record by its digest; nil where it is not. To write there never fails.
func (s *Streams) also(kept *Keeper) io.Writer {
	meter := s.Meters[0]
	if kept == s.stderr {
		meter = s.Meters[1]
	}
	switch {
	case meter != nil:
		return &copier{meter, streamFiles(kept.files)}
	case len(kept.files) > 0:
		return streamFiles(kept.files)
	}
	return nil
}

// heard reports output to the exec's supervision, for limits.idle.
type heard struct {
	to io.Writer
	s  *Streams
}

func (h *heard) Write(p []byte) (int, error) {
	h.s.process.Output()
	return h.to.Write(p)
}

// counter passes a stream on and counts it.
type counter struct {
	to   io.Writer
	kept *Keeper
}

func (c *counter) Write(p []byte) (int, error) {
	c.kept.mu.Lock()
	c.kept.total += int64(len(p))
	c.kept.mu.Unlock()
	return c.to.Write(p)
}

// clean passes a stream on without values. Finish ends the stream.
func (s *Streams) clean(to io.Writer) io.Writer {
	if s.Redactor == nil {
		return to
	}
	w := s.Redactor.Writer(to)
	s.cleaned = append(s.cleaned, w)
	return w
}
