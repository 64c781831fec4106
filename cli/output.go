package cli

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// output is one of the caller's streams. It remembers the first failed write, because a command whose output is lost has failed.
type output struct {
	f *os.File

	mu     sync.Mutex // two streams of a program may write to it
	closed bool       // the caller has closed it
	err    error
}

// Write writes all bytes, also if another process made the same open file non-blocking.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

func (o *output) write(p []byte) (int, error) {
	if o.closed {
		return 0, unix.EBADF
	}
	done := 0
	for {
		n, err := o.f.Write(p[done:])
		if done += n; !errors.Is(err, unix.EAGAIN) {
			return done, err
		}
		fds := []unix.PollFd{{Fd: int32(o.f.Fd()), Events: unix.POLLOUT}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return done, err
		}
	}
}

// fail remembers an error of a write that others have made.
func (o *output) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
}

// failed is the first error of writing, or nil.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// finish closes the file, because some file systems report a full disk only then.
func (o *output) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.f.Close(); err != nil && o.err == nil {
		o.err = err
	}
}

// codeOutputFailed is the code of a command whose output was lost.
const codeOutputFailed = "output_failed"

// lostOutput is the command's exit status, which is never 0 if output was lost. For a closed pipe there is no message, and the status
// is as if SIGPIPE had ended the command.
func (p *program) lostOutput(status int) int {
	p.out.finish()
	for _, o := range []struct {
		*output
		name string
	}{{p.out, "output"}, {p.programErr, "error"}} {
		err := o.failed()
		if err == nil {
			continue
		}
		closed := errors.Is(err, unix.EPIPE)
		if !closed {
			p.complain(errorText{codeOutputFailed, "write standard " + o.name + ": " + reason(err), ""})
		}
		switch {
		case status == 0 && closed:
			status = exitSignal + int(unix.SIGPIPE)
		case status == 0:
			status = exitLauncher
		}
	}
	return status
}

// reason is an error without the name of the file, because the caller did not name it.
func reason(err error) string {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// oneFile reports whether two of the caller's streams are the same file. Then the order of a program's writes to both matters.
// forkexec/client.c has the same function.
func oneFile(a, b *output) bool {
	if a.closed || b.closed {
		return false
	}
	var s, t unix.Stat_t
	if unix.Fstat(int(a.f.Fd()), &s) != nil || unix.Fstat(int(b.f.Fd()), &t) != nil {
		return false
	}
	kind := s.Mode & unix.S_IFMT
	if s.Dev != t.Dev || s.Ino != t.Ino || s.Rdev != t.Rdev || kind != t.Mode&unix.S_IFMT {
		return false
	}
	switch kind {
	case unix.S_IFREG, unix.S_IFIFO, unix.S_IFCHR, unix.S_IFSOCK:
		return accessMode(a.f) == accessMode(b.f)
	}
	return false // many files of other kinds share an inode
}

func accessMode(f *os.File) int {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return -1
	}
	return flags & unix.O_ACCMODE
}
