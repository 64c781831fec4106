package detached

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/journal"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/container/stream"
	"github.com/sandboxrun/sandboxrun/fault"
)

// Logs is what to show of a detached exec's output.
type Logs struct {
	Stdout, Stderr io.Writer // nil: not shown
	Tail           int       // so many lines of each at most; below 0: all
	Follow         bool      // until the exec has ended
}

// Logs copies what an exec has written. To follow it ends with ctx too.
func (d *Exec) Logs(ctx context.Context, l Logs) error {
	var streams []*logged
	defer func() {
		for _, s := range streams {
			s.from.Close()
		}
	}()
	for i, to := range []io.Writer{l.Stdout, l.Stderr} {
		if to == nil {
			continue
		}
		f, err := d.dir.Open(stream.Names()[i])
		if err != nil {
			return fault.New(fault.SandboxLost, "", "open log of exec %q: %w", d.Name, err)
		}
		streams = append(streams, &logged{f, to})
		if err := tail(f, l.Tail); err != nil {
			return fmt.Errorf("read log of exec %q: %w", d.Name, err)
		}
	}
	if l.Follow {
		return d.follow(ctx, streams)
	}
	return advance(streams)
}

// logged is a stream that is being shown.
type logged struct {
	from *os.File
	to   io.Writer
}

func advance(streams []*logged) error {
	for _, s := range streams {
		if _, err := io.Copy(s.to, s.from); err != nil {
			return fmt.Errorf("show log: %w", err)
		}
	}
	return nil
}

func (d *Exec) follow(ctx context.Context, streams []*logged) error {
	changed, stop := watchFiles(streams)
	defer stop()
	ended := d.Ended()
	for {
		if err := advance(streams); err != nil {
			return err
		}
		select {
		case <-ended:
			return advance(streams)
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// watchFiles signals when one of the files has grown. Where the caller has no inotify instance left it signals now and then
// that one may have.
func watchFiles(streams []*logged) (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	tell := func() {
		select {
		case ch <- struct{}{}:
		default: // a signal that was not read yet is enough
		}
	}
	if f := inotify(streams); f != nil {
		go func() {
			buf := make([]byte, 4096)
			for {
				if _, err := f.Read(buf); err != nil {
					return
				}
				tell()
			}
		}()
		return ch, func() { f.Close() }
	}
	ticker := time.NewTicker(journal.LookAgain)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				tell()
			}
		}
	}()
	return ch, func() { ticker.Stop(); close(done) }
}

func inotify(streams []*logged) *os.File {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	for _, s := range streams {
		_, err := unix.InotifyAddWatch(fd, fmt.Sprintf("/proc/self/fd/%d", s.from.Fd()), unix.IN_MODIFY)
		if err != nil {
			unix.Close(fd)
			return nil
		}
	}
	return os.NewFile(uintptr(fd), "inotify")
}

// tail goes to where the last lines begin.
func tail(f *os.File, lines int) error {
	if lines < 0 {
		return nil
	}
	at, err := f.Seek(0, io.SeekEnd)
	if err != nil || lines == 0 || at == 0 {
		return err
	}
	buf := make([]byte, 64<<10)
	for end := at; at > 0 && lines > 0; {
		part := buf[:min(at, int64(len(buf)))]
		at -= int64(len(part))
		if _, err := f.ReadAt(part, at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if at+int64(len(part)) == end && part[len(part)-1] == '\n' {
			lines++ // the end of the last line, which is met first
		}
		var start int
		start, lines = lastLines(part, lines)
		at += int64(start)
	}
	_, err = f.Seek(at, io.SeekStart)
	return err
}

// lastLines is where the last lines of a part begin, and how many of them begin before it.
func lastLines(part []byte, lines int) (start, left int) {
	for left = lines; ; {
		i := bytes.LastIndexByte(part, '\n')
		if i < 0 {
			return 0, left
		}
		if left--; left == 0 {
			return i + 1, 0
		}
		part = part[:i]
	}
}

// Missing says what of the output that is shown is not in the log.
func (d *Exec) Missing(l Logs) ([]string, error) {
	res, err := d.saved()
	if err != nil {
		return nil, err
	}
	if res == nil {
		res = &result.Result{}
	}
	var warnings []string
	for i, total := range []int64{res.StdoutBytes, res.StderrBytes} {
		name := stream.Names()[i]
		info, err := d.dir.Stat(name)
		switch {
		case err != nil || []io.Writer{l.Stdout, l.Stderr}[i] == nil:
		case total > info.Size():
			warnings = append(warnings, fmt.Sprintf("the log holds the first %d bytes of %s; the %d after them are missing", info.Size(), name, total-info.Size()))
		case total == 0 && info.Size() >= LogMax: // the number of bytes is not known
			warnings = append(warnings, fmt.Sprintf("the log holds the first %d bytes of %s; what comes after them is missing", info.Size(), name))
		}
	}
	return warnings, nil
}
