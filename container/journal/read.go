package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/fault"
)

// LookAgain is how often a reader that follows looks for new events.
const LookAgain = 100 * time.Millisecond

// NewEnd is the event of a sandbox that has ended.
func NewEnd(now time.Time) Event {
	e := Event{Time: now, Event: End}
	if line, err := e.Encode(); err == nil {
		e.Line = bytes.TrimSuffix(line, []byte("\n"))
	}
	return e
}

// Sleep sleeps for so long, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Log reads the events of one sandbox.
type Log struct {
	Dir   int
	Each  func(Event) error
	files []*os.File // that have been found and not been left, the oldest first
	rest  []byte     // the beginning of a line
}

// Close closes the files.
func (l *Log) Close() {
	for _, f := range l.files {
		f.Close()
	}
}

// Find opens the old file and the present one. The latter may become the former in between.
func (l *Log) Find() error {
	for {
		now, err := l.open(File)
		if err != nil {
			return err
		}
		old, err := l.open(OldFile)
		l.files = slices.DeleteFunc([]*os.File{old, now}, func(f *os.File) bool { return f == nil })
		if err != nil || len(l.files) < 2 || !sameFile(old, now) {
			return err
		}
		l.Close()
	}
}

// Skip passes over the events that are there.
func (l *Log) Skip() {
	for _, f := range l.files {
		_, _ = f.Seek(0, io.SeekEnd) // a regular file has an end
	}
}

// open gives nil where there is no such file.
func (l *Log) open(name string) (*os.File, error) {
	fd, err := openEvents(l.Dir, name, unix.O_RDONLY)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fault.New(fault.StateUnusable, "", "read events: open %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func sameFile(a, b *os.File) bool {
	x, err := a.Stat()
	y, err2 := b.Stat()
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// Advance reads what has come, and looks whether there is a new file. One that has lost its name is left only by the next
// call: an exec that had opened it before may still be about to append to it.
func (l *Log) Advance() error {
	for len(l.files) > 0 {
		if err := l.read(l.files[0]); err != nil {
			return err
		}
		if len(l.files) == 1 {
			break
		}
		l.files[0].Close()
		l.files, l.rest = l.files[1:], nil
	}
	now, err := l.open(File)
	if err != nil || now == nil {
		return err
	}
	if n := len(l.files); n > 0 && sameFile(now, l.files[n-1]) {
		now.Close()
		return nil
	}
	l.files = append(l.files, now)
	return nil
}

// maxLine is more than any line of ours has.
const maxLine = 1 << 20

// read reads to the end of a file.
func (l *Log) read(f *os.File) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		l.rest = append(l.rest, buf[:n]...)
		if err := l.lines(); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
	}
}

// lines reads whole lines. What follows the last is still to be completed, or never will be.
func (l *Log) lines() error {
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			break
		}
		l.rest = rest
		if e, ok := decodeEvent(line); ok {
			if err := l.Each(e); err != nil {
				return err
			}
		}
	}
	if len(l.rest) > maxLine {
		l.rest = nil
	}
	return nil
}
