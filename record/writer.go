package record

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// reservedSize is the number of bytes that Reserve reserves. A Run takes one or two thousand.
const reservedSize = 256 << 10

var (
	// ErrEnded means that the record has its end, so nothing can be appended.
	ErrEnded = errors.New("the record has ended")
	// ErrDamaged means that nothing can be appended, because the record does not end with an event of this session.
	ErrDamaged = errors.New("the record is damaged")
)

// Writer appends events to a record. Several processes may append at once: each takes a lock, reads the end of the record, and
// continues from there. After an error of any method the record lacks an event, so no program may run.
type Writer struct {
	// Redactor, if it is not nil, redacts all events.
	Redactor *Redactor

	mu      sync.Mutex
	f       *os.File
	session string
	head    Head
	size    int64 // of the file when head was its last event; 0: unknown
}

// Create makes an empty record. The file must not exist. dir may be a descriptor with O_PATH.
func Create(dir *os.File, name string) (*Writer, error) {
	f, err := openAt(dir, name, syscall.O_RDWR|syscall.O_APPEND|syscall.O_CREAT|syscall.O_EXCL)
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("create record: %w", err)
	}
	return &Writer{f: f, session: rand.Text()}, nil
}

// Open opens a record that Create made, to append to it. The session is that of Writer.Session. If another record has replaced
// this one, Append and Reserve fail.
func Open(dir *os.File, name, session string) (*Writer, error) {
	f, err := openAt(dir, name, syscall.O_RDWR|syscall.O_APPEND|syscall.O_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open record: %w", err)
	}
	return &Writer{f: f, session: session}, nil
}

func openAt(dir *os.File, name string, flags int) (*os.File, error) {
	for {
		fd, err := syscall.Openat(int(dir.Fd()), name, flags|syscall.O_NOFOLLOW|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0o600)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// syncDir makes a name in a directory survive a crash. A descriptor with O_PATH cannot be synced, so syncDir opens the directory
// again.
func syncDir(dir *os.File) error {
	d, err := openAt(dir, ".", syscall.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); !errors.Is(err, syscall.EINVAL) { // some file systems do not sync directories
		return err
	}
	return nil
}

// Session is the random name of the record, which Open needs.
func (w *Writer) Session() string { return w.session }

// Head is the last event that this Writer appended or read.
func (w *Writer) Head() Head {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.head
}

// Close closes the file.
func (w *Writer) Close() error { return w.f.Close() }

// Reserve is called before a program starts. It checks that the record can be written, and reserves disk space for the event of
// the program's end, in case the program fills the disk. Network events do not use this space. It is enough for the ends of about
// a hundred execs at once. If the file system cannot reserve space, Reserve only checks that there is free space now.
func (w *Writer) Reserve() error {
	return w.locked("reserve room in record", func(end *ending) error {
		if end.last == "" {
			return fmt.Errorf("%w: it has no event yet", ErrDamaged)
		}
		return w.reserve(end.size, reservedSize)
	})
}

// Append writes events in one write. When it returns, they and all events before them are on the disk, except network events.
func (w *Writer) Append(events ...Event) error {
	return w.locked("write record", func(end *ending) error { return w.append(end, events) })
}

// ending is the end of a record.
type ending struct {
	head Head
	last string // the kind of the last event; empty: the record has no event
	size int64
	torn []byte // the bytes after the last event, which are not an event
	open bool   // the last event lacks its newline
}

// locked calls do with the lock held.
func (w *Writer) locked(doing string, do func(*ending) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	fd := int(w.f.Fd())
	err := flock(fd, syscall.LOCK_EX)
	if err == nil {
		defer flock(fd, syscall.LOCK_UN) //nolint:errcheck // closing the file would do too
		var end *ending
		if end, err = w.look(); err == nil {
			err = do(end)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

func flock(fd, how int) error {
	for {
		if err := syscall.Flock(fd, how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// look reads the end of the record, unless no other process has written since.
func (w *Writer) look() (*ending, error) {
	info, err := w.f.Stat()
	if err != nil {
		return nil, err
	}
	end := &ending{size: info.Size(), head: Head{Session: w.session, Hash: noHash()}}
	if end.size == 0 && w.size == 0 {
		return end, nil
	}
	// Read ever larger parts of the end, because lines can be long, and so can torn bytes after them.
	for window := int64(16 << 10); ; window = 3 * maxLine {
		window = min(window, end.size)
		data := make([]byte, window)
		if _, err := w.f.ReadAt(data, end.size-window); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		found := end.parse(data)
		switch {
		case found && end.head.Session != w.session:
			return nil, fmt.Errorf("%w: it is of another session", ErrDamaged)
		case found && end.last == KindEnd:
			return nil, ErrEnded
		case found && (end.head.Seq < w.head.Seq || end.head.Seq == w.head.Seq && end.head != w.head):
			return nil, fmt.Errorf("%w: it has lost events", ErrDamaged)
		case found:
			w.head = end.head
			return end, nil
		case window == end.size || window == 3*maxLine:
			return nil, fmt.Errorf("%w: it does not end with an event", ErrDamaged)
		}
	}
}

// parse searches the last bytes of the file for the last event, and sets the fields of e.
func (e *ending) parse(data []byte) bool {
	for stop := len(data); stop > 0; {
		text := bytes.TrimSuffix(data[:stop], []byte("\n"))
		start := bytes.LastIndexByte(text, '\n') + 1
		if l, err := decode(text[start:]); err == nil && l.whole {
			e.head = Head{l.Session, l.Seq, l.hash}
			e.last, e.torn, e.open = l.Event, data[stop:], stop == len(text)
			return true
		}
		stop = start
	}
	return false
}

func (w *Writer) append(end *ending, events []Event) error {
	var out []byte
	if end.open || len(end.torn) > 0 && end.torn[len(end.torn)-1] != '\n' {
		out = append(out, '\n')
	}
	h := header{Seq: end.head.Seq, Prev: end.head.Hash, Session: w.session}
	if len(end.torn) > 0 {
		torn := append(bytes.Clone(end.torn), out...)
		h.Torn = &Torn{Bytes: int64(len(torn)), SHA256: Digest(torn)}
	}
	last, lasting := end.last, false
	for _, e := range events {
		if (last == "") != (e.kind() == KindSession) || last == KindEnd {
			return fmt.Errorf("%s cannot come after %q", e.kind(), last)
		}
		last, lasting = e.kind(), lasting || e.kind() != KindNetwork
		line, hash, err := encode(h.next(), w.prepared(e))
		if err != nil {
			return err
		}
		h.Prev, h.Torn = hash, nil
		out = append(out, line...)
	}
	if err := w.write(end.size, out, last); err != nil {
		return err
	}
	w.head = Head{w.session, h.Seq, h.Prev}
	w.size = end.size + int64(len(out))
	if last == KindEnd {
		w.release()
	}
	if !lasting {
		return nil
	}
	return syscall.Fdatasync(int(w.f.Fd()))
}

// next advances the header to the next event.
func (h *header) next() *header {
	h.Seq++
	h.Time = stamp{time.Now()}
	return h
}

// prepared is the event as it is written: redacted, and a Session with its format.
func (w *Writer) prepared(e Event) Event {
	if w.Redactor != nil {
		e = e.redacted(w.Redactor)
	}
	if s, ok := e.(*Session); ok {
		c := *s
		c.Format = Format
		e = &c
	}
	return e
}

// write appends all bytes. If that fails, it removes the part that was written. Checks and network events do not
// use the reserved space.
func (w *Writer) write(size int64, out []byte, last string) error {
	if last == KindNetwork || last == KindCheck {
		if err := w.reserve(size, reservedSize+int64(len(out))); err != nil {
			return err
		}
	}
	n, err := w.f.Write(out)
	if err == nil {
		return nil
	}
	if n > 0 { // otherwise the rest would be reported as torn
		_ = w.f.Truncate(size)
	}
	return err
}

// Modes of fallocate(2).
const (
	keepSize  = 1
	punchHole = 2
)

func (w *Writer) reserve(size, room int64) error {
	fd := int(w.f.Fd())
	for {
		err := syscall.Fallocate(fd, keepSize, size, room)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
			return enough(fd, room)
		}
		return err
	}
}

// enough reports whether the file system has this much free space now.
func enough(fd int, room int64) error {
	var st syscall.Statfs_t
	if err := syscall.Fstatfs(fd, &st); err != nil {
		return err
	}
	if int64(st.Bavail) < room/st.Bsize+1 {
		return syscall.ENOSPC
	}
	return nil
}

// release gives the reserved space back. Some file systems do it with the first call, some with the second, some not at all.
func (w *Writer) release() {
	_ = syscall.Fallocate(int(w.f.Fd()), keepSize|punchHole, w.size, reservedSize)
	_ = w.f.Truncate(w.size)
}
