package container

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

	"github.com/sandboxrun/sandboxrun/container/procfs"
)

// lookAgain is how often a reader that follows looks for new events.
const lookAgain = 100 * time.Millisecond

// Events calls each for every event of a sandbox, also of one that has died and that nobody has swept. With follow it
// goes on with those that come, until the sandbox ends, of which a last event tells, or ctx does.
func (s *Store) Events(ctx context.Context, id string, follow bool, each func(Event) error) error {
	sb, err := s.openForEvents(id)
	if err != nil {
		return err
	}
	defer sb.Close()
	log := &eventLog{dir: int(sb.dir.Fd()), each: each}
	defer log.close()
	if err := log.find(); err != nil {
		return err
	}
	if err := log.advance(); err != nil || !follow {
		return err
	}
	for ended := false; ; {
		was := ended
		ended = sb.init == nil || sb.WaitEnd(ctx, lookAgain)
		if ended { // its launchers still have to tell how their execs have ended
			sleep(ctx, lookAgain)
		}
		if err := log.advance(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if was {
			return each(endEvent(time.Now()))
		}
	}
}

// openForEvents is Open, but it is enough that there was a sandbox.
func (s *Store) openForEvents(id string) (*Sandbox, error) {
	sb, err := s.Open(id)
	var e *Error
	if err == nil || !errors.As(err, &e) || e.Code != "sandbox_lost" {
		return sb, err
	}
	st, loadErr := s.load(id)
	if loadErr != nil {
		return nil, err
	}
	dir, openErr := s.root.Open(id)
	if openErr != nil {
		return nil, err
	}
	return &Sandbox{store: s, state: st, dir: dir}, nil
}

func endEvent(now time.Time) Event {
	e := Event{Time: now, Event: EventEnd}
	if line, err := e.encode(); err == nil {
		e.Line = bytes.TrimSuffix(line, []byte("\n"))
	}
	return e
}

// sleep sleeps for so long, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// WaitEnd waits until the sandbox has ended, for so long at most, and says whether it has. The end of ctx ends it too.
func (sb *Sandbox) WaitEnd(ctx context.Context, d time.Duration) bool {
	for end := time.Now().Add(d); ; {
		left := max(0, min(time.Until(end), lookAgain))
		if procfs.PidfdWait(sb.init, int((left+time.Millisecond-1)/time.Millisecond)) {
			return true
		}
		if left == 0 || ctx.Err() != nil {
			return false
		}
	}
}

// eventLog reads the events of one sandbox.
type eventLog struct {
	dir   int
	each  func(Event) error
	files []*os.File // that have been found and not been left, the oldest first
	rest  []byte     // the beginning of a line
}

func (l *eventLog) close() {
	for _, f := range l.files {
		f.Close()
	}
}

// find opens the old file and the present one. The latter may become the former in between.
func (l *eventLog) find() error {
	for {
		now, err := l.open(eventsFile)
		if err != nil {
			return err
		}
		old, err := l.open(oldEventsFile)
		l.files = slices.DeleteFunc([]*os.File{old, now}, func(f *os.File) bool { return f == nil })
		if err != nil || len(l.files) < 2 || !sameFile(old, now) {
			return err
		}
		l.close()
	}
}

// open gives nil where there is no such file.
func (l *eventLog) open(name string) (*os.File, error) {
	fd, err := openEvents(l.dir, name, unix.O_RDONLY)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fail("state_unusable", "", "read events: open %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func sameFile(a, b *os.File) bool {
	x, err := a.Stat()
	y, err2 := b.Stat()
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// advance reads what has come, and looks whether there is a new file. One that has lost its name is left only by the next
// call: an exec that had opened it before may still be about to append to it.
func (l *eventLog) advance() error {
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
	now, err := l.open(eventsFile)
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
func (l *eventLog) read(f *os.File) error {
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

// lines tells of whole lines. What follows the last is still to be completed, or never will be.
func (l *eventLog) lines() error {
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			break
		}
		l.rest = rest
		if e, ok := decodeEvent(line); ok {
			if err := l.each(e); err != nil {
				return err
			}
		}
	}
	if len(l.rest) > maxLine {
		l.rest = nil
	}
	return nil
}
