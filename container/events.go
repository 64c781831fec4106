package container

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/spec"
)

// What has happened in a sandbox is kept in its directory, ID/events.jsonl, for people and programs to look at. Nothing
// of ours depends on it. forkexec/client.c writes the events of plain execs, so the form is fixed:
//
// A line is a JSON object without spaces between its parts and one '\n'. It begins with `{"time":"`, which stands
// nowhere else in it since quotes within strings are escaped: by that a reader finds where a line begins behind one that
// a full disk has cut off. "time" is always written with nine digits, in UTC; "event" and, where there is one, "exec" follow:
//
//	{"time":"2006-01-02T15:04:05.000000000Z","event":"created","name":"pair","policy":"/p.toml","owner":{"pid":7,"name":"sh"},"limits":[{"limit":"pids","value":8,"enforced_by":"cgroup1","verified":true}]}
//	{"time":"2006-01-02T15:04:05.000000000Z","event":"exec_started","exec":"e000001","command":"python3"}
//	{"time":"2006-01-02T15:04:05.000000000Z","event":"warning","exec":"e000001","message":"..."}
//	{"time":"2006-01-02T15:04:05.000000000Z","event":"exec_ended","exec":"e000001","outcome":"exited","finding":null,"exit_code":0,"wall_ms":12.1,"cpu_ms":9.034,"max_rss_bytes":9437184}
//
// "name" and "limits" are left out where they are empty; "owner" is null where the sandbox has none. "detached":true
// follows "command" where it is so. "outcome", "finding" and the numbers are those of the Result; milliseconds have at
// most three decimals. "command" is argv[0] alone, since arguments may hold secrets, of at most maxCommand bytes, before any is escaped;
// a longer one is cut after a whole character and ends with "…". In strings `"`, `\` and everything that strconv.IsPrint does not print
// are escaped (\uXXXX), and what is not UTF-8 becomes \ufffd, so that the file can be shown on a terminal as it is.
//
// A line is one write(2) to a descriptor with O_APPEND, so lines of parallel execs do not mix. "exec_started" comes once
// the program has been executed; its writer opens with O_CREAT and mode 0600, and rotates (see keepSmall). The others open
// without O_CREAT: the sandbox may have been deleted meanwhile, and nothing must appear in its directory again. Everything
// is opened below the sandbox's directory, by a descriptor, with O_NOFOLLOW: another sandbox may have its id by now.
const (
	eventsFile    = "events.jsonl"
	oldEventsFile = "events.old.jsonl"

	maxEvents  = 4 << 20 // bytes; then the file becomes the old one
	maxCommand = 256
	maxMessage = 4096
)

// Kinds of events.
const (
	EventCreated = "created"
	EventStarted = "exec_started"
	EventWarning = "warning"
	EventEnded   = "exec_ended"
	EventEnd     = "ended" // of the sandbox; made up by the reader
)

// Event is something that has happened in a sandbox. Of the pointers, that is there which belongs to its kind.
type Event struct {
	Time  time.Time `json:"-"` // encode and decodeEvent see to it
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
	Owner  *Owner       `json:"owner"`
	Limits []spec.Limit `json:"limits,omitempty"`
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

func (sb *Sandbox) noteCreated() error {
	st := sb.state
	return sb.note(true, Event{Event: EventCreated, Creation: &Creation{
		Name: st.Name, Policy: st.Policy, Owner: st.Owner, Limits: st.Limits,
	}})
}

func (r *Running) noteStarted(command string) error {
	return r.sb.note(true, Event{Event: EventStarted, Exec: r.Name, ExecStart: &ExecStart{Command: shorten(r.redactor.String(command), maxCommand), Detached: r.detached}})
}

func (r *Running) noteEnded(res *Result) error {
	events := make([]Event, 0, len(res.Warnings)+1)
	for _, w := range res.Warnings {
		events = append(events, Event{Event: EventWarning, Exec: r.Name, Message: shorten(w, maxMessage)})
	}
	u := &res.Usage
	return r.sb.note(false, append(events, Event{Event: EventEnded, Exec: r.Name, ExecEnd: &ExecEnd{
		Outcome: res.Outcome, Finding: res.Finding, ExitCode: res.ExitCode,
		WallMS: u.WallMS, CPUMS: u.CPUMS, MaxRSSBytes: u.MaxRSSBytes,
	}})...)
}

// unnoted is the warning that an event could not be kept: a full disk must not end an exec.
func unnoted(err error) string { return fmt.Sprintf("an event of this exec was not kept: %v", err) }

// note appends events. That the sandbox is no more is no error: then nobody reads them.
func (sb *Sandbox) note(create bool, events ...Event) error {
	dir := int(sb.dir.Fd())
	fd, err := openAppend(dir, create)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", eventsFile, err)
	}
	defer func() { unix.Close(fd) }()
	now := time.Now()
	for _, e := range events {
		e.Time = now
		line, err := e.encode()
		if err == nil {
			err = writeOnce(fd, line)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", eventsFile, err)
		}
	}
	return nil
}

func openAppend(dir int, create bool) (int, error) {
	flags := unix.O_WRONLY | unix.O_APPEND
	if !create {
		fd, err := openEvents(dir, eventsFile, flags)
		if errors.Is(err, unix.ENOENT) { // just now it became the old one, and the next is not there yet
			fd, err = openEvents(dir, oldEventsFile, flags)
		}
		return fd, err
	}
	fd, err := openEvents(dir, eventsFile, flags|unix.O_CREAT)
	if err != nil {
		return -1, err
	}
	if moved, err := keepSmall(dir, fd); !moved || err != nil {
		return fd, nil //nolint:nilerr // it grows a little more; the next exec tries again
	}
	unix.Close(fd)
	return openEvents(dir, eventsFile, flags|unix.O_CREAT)
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
// that is renamed, so whoever gets it second finds that the name is another file's. Nobody waits for it: while one
// renames, others append to what then is the old file.
func keepSmall(dir, fd int) (moved bool, err error) {
	var st, now unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size <= maxEvents {
		return false, err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return false, err
	}
	defer unix.Flock(fd, unix.LOCK_UN) //nolint:errcheck // closing it would do too
	if err := unix.Fstatat(dir, eventsFile, &now, unix.AT_SYMLINK_NOFOLLOW); err != nil || now.Ino != st.Ino {
		return true, err
	}
	return true, unix.Renameat(dir, eventsFile, dir, oldEventsFile)
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

const (
	eventStart = `{"time":"`
	eventTime  = "2006-01-02T15:04:05.000000000Z"
)

// encode makes the event's line, with the newline.
func (e *Event) encode() ([]byte, error) {
	var buf bytes.Buffer
	buf.WriteString(eventStart)
	buf.Write(e.Time.UTC().AppendFormat(buf.AvailableBuffer(), eventTime))
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
	if bytes.IndexFunc(line, unprintable) < 0 {
		return line
	}
	var out []byte
	for _, r := range string(line) {
		switch high, low := utf16.EncodeRune(r); {
		case !unprintable(r):
			out = utf8.AppendRune(out, r)
		case high != utf8.RuneError:
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

func unprintable(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }

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

// shorten cuts a text after a whole character.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const dots = "…"
	s = s[:most-len(dots)]
	return s[:len(s)-partialEnd([]byte(s[max(0, len(s)-utf8.UTFMax):]))] + dots
}
