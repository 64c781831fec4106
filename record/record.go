// Package record tells what was done in a sandbox, so that it can be checked later, elsewhere, by somebody who was not
// there. It also takes the values of keys out of what is kept (Redactor).
//
// # The file
//
// A record is a file of events, one a line, each a JSON object in ASCII that ends with its hash:
//
//	{"seq":1,"time":"2006-01-02T15:04:05.000000000Z","session":"...","prev":"000...","event":"SANDBOX_SESSION",...,"hash":"..."}
//
// "seq" counts from 1. "session" is random, and the same in all lines of a record. "prev" is the "hash" of the line before,
// in the first line 64 zeros. "hash" comes last in its line, and is the SHA-256, in 64 hexadecimal digits, of all bytes of the
// line that stand before `,"hash":"`; quotes within strings are escaped, so that these bytes occur only once. In Python:
//
//	import hashlib, json
//	prev = "0" * 64
//	for line in open("record.jsonl", "rb"):
//	    event = json.loads(line)
//	    assert event["prev"] == prev
//	    prev = hashlib.sha256(line.rpartition(b',"hash":"')[0]).hexdigest()
//	    assert event["hash"] == prev
//
// SANDBOX_SESSION comes first. SANDBOX_CHECK, SANDBOX_RUN and SANDBOX_NETWORK follow in the order in which they were told
// of, and SANDBOX_END is the last: without it the record is unfinished.
//
// What a crash or a full disk has cut off in the middle of a line stays in the file. The event that is written next ends
// the line, and has "torn", with the number and the SHA-256 of the bytes that stand between the event before and itself.
//
// # What it is worth
//
// A chain shows that lines were changed, removed, added or moved by somebody who did not calculate all the hashes after
// them anew. It cannot show that: whoever can write the file can write another record. Nor can it show that the end was
// cut off and made anew. Only what is kept elsewhere can: the hash of the last line (Options.Head), or a signature over
// it (Sign), which nobody can make without the key.
//
// No argument and no output of a program stands in a record, only their digests: they may hold secrets. Of few possible
// arguments a digest tells which it was.
package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// FileName is what a record is called in its directory.
const FileName = "record.jsonl"

// Format is the version of what this package writes and reads.
const Format = 1

// maxLine is how long a line may be, in bytes: thousands of mounts.
const maxLine = 1 << 20

const (
	hashMark = `,"hash":"`
	hashSize = 2 * sha256.Size
	lineTail = hashSize + len(`"}`)
	timeForm = "2006-01-02T15:04:05.000000000Z"
)

// noHash is what the first line has for prev.
func noHash() string { return strings.Repeat("0", hashSize) }

// Digest is the SHA-256 of some bytes, in hex.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// ArgvDigest is the SHA-256 of a command's arguments, argv[0] included, each of which ends with a zero byte, in hex.
func ArgvDigest(argv []string) string {
	h := sha256.New()
	for _, a := range argv {
		h.Write([]byte(a))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Head names the last event of a record, and with it all that come before.
type Head struct {
	Session string `json:"session"`
	Seq     uint64 `json:"seq"`
	Hash    string `json:"hash"`
}

// header is what all events have.
type header struct {
	Seq     uint64 `json:"seq"`
	Time    stamp  `json:"time"`
	Session string `json:"session"`
	Prev    string `json:"prev"`
	Event   string `json:"event"`
	Torn    *Torn  `json:"torn,omitempty"`
}

// Torn are bytes that are no event: somebody was interrupted while writing one.
type Torn struct {
	Line   int    `json:"line,omitempty"` // where they begin; only Verify tells
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// stamp is a time in UTC with nine digits.
type stamp struct{ time.Time }

func (s stamp) MarshalJSON() ([]byte, error) {
	return []byte(`"` + s.UTC().Format(timeForm) + `"`), nil
}

// encode makes an event's line, with the newline, and its hash.
func encode(h *header, e Event) (line []byte, hash string, err error) {
	h.Event = e.kind()
	head, err := marshal(h)
	if err != nil {
		return nil, "", err
	}
	body, err := marshal(e)
	if err != nil {
		return nil, "", err
	}
	line = append(head[:len(head)-1], ',')
	line = append(line, body[1:len(body)-1]...)
	hash = Digest(line)
	line = append(line, hashMark+hash+"\"}\n"...)
	if len(line) > maxLine {
		return nil, "", fmt.Errorf("an event of %d bytes: at most %d fit into a record", len(line), maxLine)
	}
	return line, hash, nil
}

// marshal writes JSON that can be shown on a terminal as it is: all that is not ASCII is escaped.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	text := strings.TrimSuffix(buf.String(), "\n")
	const last = '~'
	if strings.IndexFunc(text, func(r rune) bool { return r > last }) < 0 {
		return []byte(text), nil
	}
	out := make([]byte, 0, len(text)+16)
	for _, r := range text {
		switch {
		case r <= last:
			out = append(out, byte(r))
		case r > 0xffff: // two surrogates
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out, nil
}

// line is a line that has been read.
type line struct {
	header
	hash  string // that it says
	whole bool   // and that it has
	data  []byte
}

var errNoEvent = errors.New("it does not end with a hash")

// decode reads a line, without its newline. An error says that it is none at all; whole is still to be looked at.
func decode(data []byte) (line, error) {
	l := line{data: data}
	at := len(data) - lineTail - len(hashMark)
	if at < 1 || string(data[at:at+len(hashMark)]) != hashMark || !bytes.HasSuffix(data, []byte(`"}`)) {
		return l, errNoEvent
	}
	if err := json.Unmarshal(data, &l.header); err != nil {
		return l, err
	}
	l.hash = string(data[at+len(hashMark) : at+len(hashMark)+hashSize])
	l.whole = l.hash == Digest(data[:at])
	return l, nil
}
