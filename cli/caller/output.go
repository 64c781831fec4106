package caller

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
)

// Output is one of the caller's streams. It remembers the first failed write, because a command whose output is lost has failed.
type Output struct {
	File   *os.File
	Closed bool // the caller has closed it

	mu  sync.Mutex // two streams of a program may write to it
	err error
}

// Write writes all bytes, also if another process made the same open file non-blocking.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

func (o *Output) write(p []byte) (int, error) {
	if o.Closed {
		return 0, unix.EBADF
	}
	done := 0
	for {
		n, err := o.File.Write(p[done:])
		if done += n; !errors.Is(err, unix.EAGAIN) {
			return done, err
		}
		fds := []unix.PollFd{{Fd: int32(o.File.Fd()), Events: unix.POLLOUT}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return done, err
		}
	}
}

// Fail remembers an error of a write that others have made.
func (o *Output) Fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
}

// Failed is the first error of writing, or nil.
func (o *Output) Failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// finish closes the file, because some file systems report a full disk only then.
func (o *Output) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.File.Close(); err != nil && o.err == nil {
		o.err = err
	}
}

// LostOutput is the command's exit status, which is never 0 if output was lost. For a closed pipe there is no message, and the status
// is as if SIGPIPE had ended the command.
func (c *Caller) LostOutput(status int) int {
	c.Out.finish()
	for _, o := range []struct {
		*Output
		name string
	}{{c.Out, "output"}, {c.ErrOut, "error"}} {
		err := o.Failed()
		if err == nil {
			continue
		}
		closed := errors.Is(err, unix.EPIPE)
		if !closed {
			c.Complain(&result.Error{Code: fault.OutputFailed, Message: "write standard " + o.name + ": " + Reason(err)})
		}
		switch {
		case status == 0 && closed:
			status = 128 + int(unix.SIGPIPE)
		case status == 0:
			status = fault.ExitLauncher
		}
	}
	return status
}

// Reason is an error without the name of the file, because the caller did not name it.
func Reason(err error) string {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// OneFile reports whether two of the caller's streams are the same file. Then the order of a program's writes to both matters.
// forkexec/client.c has the same function.
func OneFile(a, b *Output) bool {
	if a.Closed || b.Closed {
		return false
	}
	var s, t unix.Stat_t
	if unix.Fstat(int(a.File.Fd()), &s) != nil || unix.Fstat(int(b.File.Fd()), &t) != nil {
		return false
	}
	kind := s.Mode & unix.S_IFMT
	if s.Dev != t.Dev || s.Ino != t.Ino || s.Rdev != t.Rdev || kind != t.Mode&unix.S_IFMT {
		return false
	}
	switch kind {
	case unix.S_IFREG, unix.S_IFIFO, unix.S_IFCHR, unix.S_IFSOCK:
		return accessMode(a.File) == accessMode(b.File)
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
