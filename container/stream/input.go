package stream

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The caller's standard input reaches the program through a pipe, and what the program does not read must stay with the
// caller: `while read -r x; do sandboxrun run -- ./step "$x"; done <list` would else lose its list to the first step.
//
//   - Of a file the launcher takes back, by its position, what the program has left in the pipe.
//   - Of a pipe it duplicates a page into the program's pipe, by tee(2), and takes that page out of the caller's once the
//     program has read it. The program's pipe holds one page, so it is writable exactly when it is empty.
//   - Of a socket it looks at the data first, by MSG_PEEK, and does the same.
//   - A terminal cannot be given anything back. It is read only while the launcher is in the foreground.
//
// A program that has read eagerInput bytes wants its input. From then on a pipe or a socket is copied at full speed.

const eagerInput = 64 << 10

// maxInputWait is how many milliseconds pass at most before a program that has read the rest of a file sees its end.
const maxInputWait = 32

// whileBackground is how often a launcher in the background looks whether it has come to the foreground.
const whileBackground = 200 * time.Millisecond

type inputKind int

const (
	inputOther inputKind = iota // a terminal, another device
	inputFile
	inputPipe
	inputSocket
)

func inputKindOf(fd int) inputKind {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return inputOther
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return inputFile
	case unix.S_IFIFO:
		return inputPipe
	case unix.S_IFSOCK:
		return inputSocket
	}
	return inputOther
}

// unreadable says why nothing can be read from a file, before anybody has tried. A file that is open for writing alone has
// no message: nohup(1) has it so.
func unreadable(from io.Reader) (message string, is bool) {
	f, ok := from.(*os.File)
	if !ok {
		return "", false
	}
	err := control(f, func(fd int) error {
		var st unix.Stat_t
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err == nil {
			err = unix.Fstat(fd, &st)
		}
		switch {
		case err != nil:
			return err
		case st.Mode&unix.S_IFMT == unix.S_IFDIR:
			message, is = "standard input is a directory: the program cannot read it", true
		case flags&unix.O_ACCMODE == unix.O_WRONLY, flags&unix.O_PATH != 0:
			is = true
		}
		return nil
	})
	return message, is && err == nil
}

// feed passes the caller's input on to the program.
type feed struct {
	from, to int
	kind     inputKind
	buf      []byte
	passed   int
}

// errLeft says that nobody reads the program's input any more.
var errLeft = errors.New("the program does not read any more")

// run returns at the end of the input, when nobody reads it any more, or with the error of reading it.
func (f *feed) run() error {
	if f.kind == inputFile {
		if _, err := unix.Seek(f.from, 0, io.SeekCurrent); err != nil {
			f.kind = inputOther
		}
	}
	page := os.Getpagesize()
	_, _ = unix.FcntlInt(uintptr(f.to), unix.F_SETPIPE_SZ, page) // where it does not get so small, more is read ahead
	f.buf = make([]byte, page)
	err := f.stepwise()
	if err == nil {
		_, _ = unix.FcntlInt(uintptr(f.to), unix.F_SETPIPE_SZ, eagerInput)
		f.buf = make([]byte, eagerInput)
		err = f.stream()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, errLeft) {
		return nil
	}
	return err
}

// stepwise passes on the beginning, a page at a time, and takes from the caller only what the program has read.
func (f *feed) stepwise() error {
	for f.passed < eagerInput {
		n, err := f.offer()
		if err != nil {
			return err
		}
		left := pollFile(f.to, unix.POLLOUT)
		read := n
		if left {
			read = max(n-f.unread(), 0)
		}
		if err := f.take(read); err != nil {
			return err
		}
		if left {
			return errLeft
		}
		f.passed += n
	}
	return nil
}

// offer shows the program what comes next, a page at most.
func (f *feed) offer() (int, error) {
	for {
		if err := f.await(); err != nil {
			return 0, err
		}
		var n int
		var err error
		switch f.kind {
		case inputPipe:
			var n64 int64
			n64, err = unix.Tee(f.from, f.to, len(f.buf), unix.SPLICE_F_NONBLOCK)
			n = int(n64)
		case inputSocket:
			n, _, err = unix.Recvfrom(f.from, f.buf, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		case inputFile:
			n, err = f.pread()
		default:
			n, err = unix.Read(f.from, f.buf)
		}
		switch {
		case errors.Is(err, unix.EPIPE) && f.kind == inputPipe:
			return 0, errLeft
		case err != nil && f.again(err):
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		case f.kind == inputPipe:
			return n, nil
		}
		return n, f.write(f.buf[:n])
	}
}

func (f *feed) pread() (int, error) {
	at, err := unix.Seek(f.from, 0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	return unix.Pread(f.from, f.buf, at)
}

// again reports whether an error of reading passes. A process in the background that ignores SIGTTIN gets EIO.
func (f *feed) again(err error) bool {
	switch {
	case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		return true
	case errors.Is(err, unix.EIO):
		return !inForeground(f.from)
	}
	return false
}

// take takes from the caller what the program has read.
func (f *feed) take(n int) error {
	if f.kind == inputFile {
		_, err := unix.Seek(f.from, int64(n), io.SeekCurrent)
		return err
	}
	for f.kind != inputOther && n > 0 {
		m, err := unix.Read(f.from, f.buf[:min(n, len(f.buf))])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN), m == 0 && err == nil:
			return nil // somebody else who has the same input was faster
		case err != nil:
			return err
		}
		n -= m
	}
	return nil
}

// unread is how much the program has left in its pipe.
func (f *feed) unread() int {
	n, err := unix.IoctlGetInt(f.to, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}

// stream passes on the rest. What is left of a file is given back at the end.
func (f *feed) stream() error {
	for {
		if err := f.await(); err != nil {
			return f.giveBack(err)
		}
		n, err := unix.Read(f.from, f.buf)
		switch {
		case err != nil && f.again(err):
			continue
		case err == nil && n == 0:
			err = io.EOF
		case err == nil:
			f.passed += n
			err = f.write(f.buf[:n])
		}
		if err != nil {
			return f.giveBack(err)
		}
	}
}

// giveBack puts a file's position back over what the program has left. At the end of the file it waits for that: once our end
// of the pipe is closed, nobody can know what is left in it.
func (f *feed) giveBack(err error) error {
	if f.kind != inputFile {
		return err
	}
	for wait := 1; errors.Is(err, io.EOF) && f.unread() > 0; wait = min(2*wait, maxInputWait) {
		fds := []unix.PollFd{{Fd: int32(f.to)}}
		if n, _ := unix.Poll(fds, wait); n > 0 {
			err = errLeft
		}
	}
	if unread := min(f.unread(), f.passed); errors.Is(err, errLeft) && unread > 0 {
		_, _ = unix.Seek(f.from, -int64(unread), io.SeekCurrent) // it could be moved before
	}
	return err
}

// write writes all, or says that nobody reads it. What of a file was not even written is put back.
func (f *feed) write(p []byte) error {
	for len(p) > 0 {
		n, err := unix.Write(f.to, p)
		switch {
		case err == nil:
			p = p[n:]
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			if pollFile(f.to, unix.POLLOUT) {
				err = unix.EPIPE
			}
		}
		if errors.Is(err, unix.EPIPE) {
			if f.kind == inputFile && f.passed >= eagerInput {
				_, _ = unix.Seek(f.from, -int64(len(p)), io.SeekCurrent)
			}
			return errLeft
		}
		if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return err
		}
	}
	return nil
}

// await waits until there is something to read, and says where nobody would read it.
func (f *feed) await() error {
	fds := []unix.PollFd{{Fd: int32(f.from), Events: unix.POLLIN}, {Fd: int32(f.to)}}
	for {
		timeout := -1
		if !inForeground(f.from) {
			fds[0].Fd, timeout = -1, int(whileBackground.Milliseconds())
		} else {
			fds[0].Fd = int32(f.from)
		}
		_, err := unix.Poll(fds, timeout)
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case fds[1].Revents != 0:
			return errLeft
		case err == nil && fds[0].Fd >= 0 && fds[0].Revents != 0:
			return nil
		}
	}
}

// pollFile waits for an event of a file, and says whether nobody is at its other end any more.
func pollFile(fd int, events int16) (gone bool) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		_, err := unix.Poll(fds, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err != nil || fds[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0
	}
}

// inForeground reports whether the caller's terminal may be read. What is no terminal of ours may always be.
func inForeground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// failure is the first error of one of an exec's streams.
type failure struct {
	mu  sync.Mutex
	err error
}

func (f *failure) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *failure) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// input is the program's standard input: empty, or a pipe that is filled from a reader. A file that nobody can read
// becomes one that the program cannot read either: an end of the input would be a lie.
func (s *Streams) input(from io.Reader, uid, gid int) (*os.File, error) {
	message, failing := unreadable(from)
	if message != "" {
		s.Warnings = append(s.Warnings, message)
	}
	switch {
	case failing:
		return s.null(unix.O_WRONLY)
	case from == nil:
		return s.null(unix.O_RDWR)
	}
	inner, outer, err := s.pipe(true, uid, gid)
	if err != nil {
		return nil, err
	}
	f, ok := from.(*os.File)
	if !ok {
		s.add(false, func() { // it may block for ever, so nothing waits for it
			_, _ = io.Copy(outer, from) // the program may stop reading early
			outer.Close()
		})
		return inner, nil
	}
	feed := &feed{}
	err = errors.Join(
		control(f, func(fd int) error { feed.from, feed.kind = fd, inputKindOf(fd); return nil }),
		control(outer, func(fd int) error { feed.to = fd; return nil }),
	)
	if err != nil {
		return nil, fmt.Errorf("connect standard input: %w", err)
	}
	s.add(feed.kind != inputOther, func() {
		if err := feed.run(); err != nil {
			s.inputFailed.set(err)
		}
		outer.Close()
	})
	return inner, nil
}
