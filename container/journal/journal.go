package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Names and sizes of the files.
const (
	File    = "events.jsonl"
	OldFile = "events.old.jsonl"

	MaxSize    = 4 << 20 // bytes; then the file becomes the old one
	MaxCommand = 256
	MaxMessage = 4096
)

// Kinds of events.
const (
	Created = "created"
	Started = "exec_started"
	Warning = "warning"
	Ended   = "exec_ended"
	End     = "ended" // of the sandbox; made up by the reader
)

// Event is something that has happened in a sandbox. Of the pointers, that is there which belongs to its kind.
type Event struct {
	Time  time.Time `json:"-"` // Encode and decodeEvent see to it
	Event string    `json:"event"`
	Exec  string    `json:"exec,omitempty"`
	*Creation
	*ExecStart
	*ExecEnd
	*NetworkEvent
	Message string `json:"message,omitempty"` // of a warning

	Line []byte `json:"-"` // as it stands in the file, without the newline
}

// Creation is what an event says of a sandbox that was made.
type Creation struct {
	Name   string       `json:"name,omitempty"`
	Policy string       `json:"policy"`
	Owner  *owner.Owner `json:"owner"`
	Pool   *Pooled      `json:"pool,omitempty"`
	Limits []spec.Limit `json:"limits,omitempty"`
}

// Pooled says of a sandbox that came from a pool when it was made.
type Pooled struct {
	Built   time.Time `json:"built"` // when its checks had been made
	Claimed time.Time `json:"claimed"`
}

// ExecStart is what an event says of a program that was started.
type ExecStart struct {
	Command  string `json:"command"` // argv[0] alone
	Detached bool   `json:"detached,omitempty"`
}

// ExecEnd is what an event says of an exec that ended.
type ExecEnd struct {
	Outcome     string  `json:"outcome"`
	Finding     *string `json:"finding"`
	ExitCode    int     `json:"exit_code"`
	WallMS      float64 `json:"wall_ms"`
	CPUMS       float64 `json:"cpu_ms"`
	MaxRSSBytes int64   `json:"max_rss_bytes"`
}

// Append appends events to the journal in a sandbox's directory. That the sandbox is no more is no error: then nobody reads them.
func Append(at *os.File, create bool, events ...Event) error {
	dir := int(at.Fd())
	fd, err := openAppend(dir, create)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", File, err)
	}
	defer func() { unix.Close(fd) }()
	now := time.Now()
	for _, e := range events {
		e.Time = now
		line, err := e.Encode()
		if err == nil {
			err = writeOnce(fd, line)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", File, err)
		}
	}
	return nil
}

func openAppend(dir int, create bool) (int, error) {
	flags := unix.O_WRONLY | unix.O_APPEND
	if !create {
		fd, err := openEvents(dir, File, flags)
		if errors.Is(err, unix.ENOENT) { // just now it became the old one, and the next is not there yet
			fd, err = openEvents(dir, OldFile, flags)
		}
		return fd, err
	}
	fd, err := openEvents(dir, File, flags|unix.O_CREAT)
	if err != nil {
		return -1, err
	}
	if moved, err := keepSmall(dir, fd); !moved || err != nil {
		return fd, nil //nolint:nilerr // it grows a little more; the next exec tries again
	}
	unix.Close(fd)
	return openEvents(dir, File, flags|unix.O_CREAT)
}

func openEvents(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// keepSmall makes a file that has become too long the old one, in place of the last old one. The lock is on the file
// that is renamed, so the process that gets it second finds that the name is another file's. Nobody waits for it: while one
// renames, others append to what then is the old file.
func keepSmall(dir, fd int) (moved bool, err error) {
	var st, now unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size <= MaxSize {
		return false, err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return false, err
	}
	defer unix.Flock(fd, unix.LOCK_UN) //nolint:errcheck // closing it would do too
	if err := unix.Fstatat(dir, File, &now, unix.AT_SYMLINK_NOFOLLOW); err != nil || now.Ino != st.Ino {
		return true, err
	}
	return true, unix.Renameat(dir, File, dir, OldFile)
}

// writeOnce does not go on after a part: what another exec has appended meanwhile would be in the middle.
func writeOnce(fd int, line []byte) error {
	for {
		n, err := unix.Write(fd, line)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n < len(line):
			return io.ErrShortWrite
		}
		return nil
	}
}

const eventStart = `{"time":"`

// TimeForm is how times are written.
const TimeForm = "2006-01-02T15:04:05.000000000Z"

// Encode makes the event's line, with the newline.
func (e *Event) Encode() ([]byte, error) {
	var buf bytes.Buffer
	buf.WriteString(eventStart)
	buf.Write(e.Time.UTC().AppendFormat(buf.AvailableBuffer(), TimeForm))
	buf.WriteByte('"')
	comma := buf.Len()
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, err
	}
	line := buf.Bytes()
	line[comma] = ',' // in place of the object's brace
	return escapeUnprintable(line), nil
}

// escapeUnprintable escapes in JSON what could steer a terminal. Such characters stand only within strings.
func escapeUnprintable(line []byte) []byte {
	if bytes.IndexFunc(line, Unprintable) < 0 {
		return line
	}
	var out []byte
	for _, r := range string(line) {
		switch high, low := utf16.EncodeRune(r); {
		case !Unprintable(r):
			out = utf8.AppendRune(out, r)
		case high != utf8.RuneError:
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// Unprintable reports whether a character could steer a terminal.
func Unprintable(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }

// decodeEvent reads a line. Where one that was cut off stands before it, that is passed over.
func decodeEvent(line []byte) (Event, bool) {
	for _, at := range []int{0, bytes.LastIndex(line, []byte(eventStart))} {
		if at < 0 {
			break
		}
		var e struct {
			Time time.Time `json:"time"`
			Event
		}
		if json.Unmarshal(line[at:], &e) == nil && e.Event.Event != "" {
			e.Event.Time, e.Event.Line = e.Time, bytes.Clone(line[at:])
			return e.Event, true
		}
	}
	return Event{}, false
}

// Shorten cuts a text after a whole character.
func Shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const dots = "…"
	s = s[:most-len(dots)]
	return s[:len(s)-PartialEnd([]byte(s[max(0, len(s)-utf8.UTFMax):]))] + dots
}

// PartialEnd counts the bytes at the end that begin a character and do not finish it.
func PartialEnd(b []byte) int {
	for n := 1; n <= min(utf8.UTFMax-1, len(b)); n++ {
		c := b[len(b)-n]
		if utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// NetworkEvent is what an event says of a connection.
type NetworkEvent struct {
	Kind       string  `json:"kind"` // "forward", "connect", "http", "socks", "direct" or "dns"
	Host       string  `json:"host,omitempty"`
	Port       int     `json:"port,omitempty"`
	Address    string  `json:"address,omitempty"` // that was connected to, or refused
	Via        string  `json:"via,omitempty"`     // the upstream proxy that made the connection
	Rule       string  `json:"rule,omitempty"`    // of the policy, that allowed it
	Verdict    string  `json:"verdict"`           // "allowed", "refused" or "failed"
	Reason     string  `json:"reason,omitempty"`
	Sent       int64   `json:"sent_bytes"` // from inside
	Received   int64   `json:"received_bytes"`
	DurationMS float64 `json:"duration_ms"`
	Explain    string  `json:"explain,omitempty"` // of a refusal: what the policy lacks
}
