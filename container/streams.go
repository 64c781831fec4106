package container

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
)

// streams join a program's standard streams to ours. A program never gets a file of ours, only the ends of pipes or of a
// terminal that were made for it: what it holds it can open again by /proc/self/fd with other rights, put into
// non-blocking mode for everybody who shares it, or type into (CVE-2017-5226).
type streams struct {
	theirs []*os.File
	ours   []*os.File
	flows  []func()
	waits  []bool // which flows the exec's end waits for
}

func (s *streams) add(wait bool, flow func()) {
	s.flows = append(s.flows, flow)
	s.waits = append(s.waits, wait)
}

func (s *streams) closeTheirs() {
	for _, f := range s.theirs {
		f.Close()
	}
}

func (s *streams) closeOurs() {
	for _, f := range s.ours {
		f.Close()
	}
}

func (s *streams) flow(done *sync.WaitGroup) {
	for i, f := range s.flows {
		if s.waits[i] {
			done.Go(f)
		} else {
			go f()
		}
	}
}

// pipe makes a pipe whose inner end belongs to the program's user, so that it can open it by path (moby/moby#31243).
// The outer end does not block a thread of ours.
func (s *streams) pipe(innerReads bool, uid, gid int) (inner, outer *os.File, err error) {
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

// connect makes the streams of an exec.
func (r *Running) connect(req Request, cmd *forkexec.Command) (*streams, error) {
	s := &streams{}
	var err error
	if req.Tty != nil {
		r.connectTerminal(s, req, cmd)
	} else {
		err = r.connectPipes(s, req, cmd)
	}
	if err == nil {
		err = r.connectAnswer(s, req, cmd)
	}
	if err != nil {
		s.closeTheirs()
		s.closeOurs()
		return nil, err
	}
	return s, nil
}

func (r *Running) connectPipes(s *streams, req Request, cmd *forkexec.Command) error {
	var err error
	if cmd.Stdio[0], err = r.input(s, req.Stdin, cmd.UID, cmd.GID); err != nil {
		return err
	}
	one := req.OneOutput && req.OutputDir == ""
	outputs := []struct {
		to      io.Writer
		kept    *keeper
		newline string // of lines about refusals; "" where they are not to go
	}{{req.Stdout, r.stdout, ""}, {req.Stderr, r.stderr, "\n"}}
	if one {
		outputs[0].newline = "\n"
	}
	for i, o := range outputs {
		if i == 1 && one {
			cmd.Stdio[2] = cmd.Stdio[1] // one pipe keeps the order in which both are written
			r.stderr.away, r.merged = true, true
			return nil
		}
		if _, gone := o.to.(Closed); gone {
			o.kept.away = true
			if cmd.Stdio[i+1], err = r.null(s, unix.O_RDONLY); err != nil {
				return err
			}
			continue
		}
		inner, outer, err := s.pipe(false, cmd.UID, cmd.GID)
		if err != nil {
			return err
		}
		cmd.Stdio[i+1] = inner
		to := r.guard(req, r.refusals.beside(r.output(o.to, o.kept), o.newline))
		s.add(true, func() { pump(to, outer) })
	}
	return nil
}

// Closed is an output of a caller's who has none: the descriptor is closed. A program that writes there is told EBADF, as
// it would be without us.
type Closed struct{}

// Write fails.
func (Closed) Write([]byte) (int, error) { return 0, unix.EBADF }

// null is the null device for the program: to be read, to be written, or both; what it is not opened for fails.
func (r *Running) null(s *streams, mode uint64) (*os.File, error) {
	null, err := r.sb.null(mode)
	if err != nil {
		return nil, err
	}
	s.theirs = append(s.theirs, null)
	return null, nil
}

// null opens the sandbox's own /dev/null: through the host's mount its owner could change its mode.
func (sb *Sandbox) null(mode uint64) (*os.File, error) {
	in, err := sb.inside()
	if err != nil {
		return nil, err
	}
	defer unix.Close(in.FD)
	null, err := in.Open(os.DevNull, mode)
	if err != nil {
		return nil, fmt.Errorf("open the null device of sandbox %q: %w", sb.state.ID, err)
	}
	return null, nil
}

// output is where a stream goes: to a writer, or it is kept.
func (r *Running) output(to io.Writer, kept *keeper) io.Writer {
	also := r.also(kept)
	switch {
	case to != nil && also != nil:
		kept.away = true
		to = &copier{&counter{to, kept}, r.clean(also)}
	case to != nil:
		kept.away = true
		to = &counter{to, kept}
	case also != nil:
		to = r.clean(&copier{kept, also})
	default:
		to = r.clean(kept)
	}
	if r.limits.Idle > 0 {
		return &heard{to, r}
	}
	return to
}

// also is where a stream is kept besides: in files, and in the record by its digest; nil where it is not. To write there never fails.
func (r *Running) also(kept *keeper) io.Writer {
	meter := r.meters[0]
	if kept == r.stderr {
		meter = r.meters[1]
	}
	switch {
	case meter != nil:
		return &copier{meter, streamFiles(kept.files)}
	case len(kept.files) > 0:
		return streamFiles(kept.files)
	}
	return nil
}

// heard tells the exec's supervision that the program has written something.
type heard struct {
	to io.Writer
	r  *Running
}

func (h *heard) Write(p []byte) (int, error) {
	h.r.process.Output()
	return h.to.Write(p)
}

// counter passes a stream on and counts it.
type counter struct {
	to   io.Writer
	kept *keeper
}

func (c *counter) Write(p []byte) (int, error) {
	c.kept.mu.Lock()
	c.kept.total += int64(len(p))
	c.kept.mu.Unlock()
	return c.to.Write(p)
}
