package relayproc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/journal"
	"github.com/sandboxrun/sandboxrun/container/recording"
	"github.com/sandboxrun/sandboxrun/record"
	"github.com/sandboxrun/sandboxrun/relay"
)

// eventNetwork is the event of one connection, one request of a kept HTTP connection, or one name that was refused.
const eventNetwork = "network"

// Stats count what has gone through the relay since the sandbox was made.
type Stats struct {
	Allowed  int64 `json:"allowed"` // connections and requests that have ended
	Refused  int64 `json:"refused"`
	Failed   int64 `json:"failed"`
	Sent     int64 `json:"sent_bytes"`
	Received int64 `json:"received_bytes"`
}

// networkFile holds Stats as they are in memory, each number in eight bytes, little endian first. The relay writes
// it, in one piece.
const networkFile = "network"

// relayNotes writes the relay's events and counts.
type relayNotes struct {
	dir      *os.File // the sandbox's
	stats    Stats
	file     *os.File
	record   *record.Writer // nil: there is none
	recorded int            // events that are in it
	stop     func()         // ends the relay
}

// maxRecorded bounds what a program can make a record hold, and fill a disk with. What comes after is counted all the same.
const maxRecorded = 100_000

func (n *relayNotes) open(at *recording.Location) (err error) {
	if at != nil {
		if n.record, err = at.Open(); err != nil {
			return err
		}
	}
	fd, err := unix.Openat(int(n.dir.Fd()), networkFile, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("make %s: %w", networkFile, err)
	}
	n.file = os.NewFile(uintptr(fd), networkFile)
	return n.write()
}

func (n *relayNotes) write() error {
	var buf bytes.Buffer
	if err := binary.Write(&buf, binary.LittleEndian, &n.stats); err != nil {
		return err
	}
	_, err := n.file.WriteAt(buf.Bytes(), 0)
	return err
}

// append writes the event to the record. What cannot be recorded must not happen: then the relay ends.
func (n *relayNotes) append(ev *relay.Event, ms float64) {
	if n.record == nil || n.recorded > maxRecorded {
		return
	}
	e := &record.Network{
		Way: ev.Kind, Host: ev.Host, Port: ev.Port, Address: ev.Address, Via: ev.Via, Rule: ev.Rule, Verdict: ev.Verdict, Reason: ev.Reason,
		BytesIn: ev.Down, BytesOut: ev.Up, DurationMS: ms,
	}
	if n.recorded++; n.recorded > maxRecorded {
		e = &record.Network{Way: "any", Verdict: "not_told", Reason: "further connections are counted, and not told one by one"}
	}
	if n.record.Append(e) != nil {
		n.stop()
	}
}

// note is called for one event at a time. A full disk must not end a connection: what cannot be kept is still counted.
func (n *relayNotes) note(ev relay.Event) {
	switch ev.Verdict {
	case relay.Allowed:
		n.stats.Allowed++
	case relay.Refused:
		n.stats.Refused++
	default:
		n.stats.Failed++
	}
	n.stats.Sent += ev.Up
	n.stats.Received += ev.Down
	_ = n.write()
	ms := float64(ev.Duration.Round(time.Microsecond)) / float64(time.Millisecond)
	n.append(&ev, ms)
	_ = journal.Append(n.dir, true, journal.Event{Event: eventNetwork, NetworkEvent: &journal.NetworkEvent{
		Kind: ev.Kind, Host: ev.Host, Port: ev.Port, Address: ev.Address, Via: ev.Via, Rule: ev.Rule, Verdict: ev.Verdict, Reason: journal.Shorten(ev.Reason, journal.MaxMessage),
		Sent: ev.Up, Received: ev.Down, DurationMS: ms, Explain: journal.Shorten(ev.Explain, journal.MaxMessage),
	}})
}

// Counts reads the counts, by the directory of all sandboxes; nil where the sandbox has no relay.
func Counts(root *os.Root, id string) (*Stats, error) {
	data, err := root.ReadFile(filepath.Join(id, networkFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var n Stats
	if err == nil {
		err = binary.Read(bytes.NewReader(data), binary.LittleEndian, &n)
	}
	if err != nil {
		return nil, fmt.Errorf("read counts of the network of sandbox %q: %w", id, err)
	}
	return &n, nil
}
