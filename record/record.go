// Package record writes the record of a sandbox and verifies it: later, on any machine, without the sandbox. It also has the
// Redactor, which removes the values of keys from stored output. It imports of ours fault and secret.
//
// # The file
//
// A record is a file of events, one a line, each a JSON object in ASCII that ends with its hash:
//
//	{"seq":1,"time":"2006-01-02T15:04:05.000000000Z","session":"...","prev":"000...","event":"SANDBOX_SESSION",...,"hash":"..."}
//
// "seq" counts from 1. "session" is random, and the same in all lines of a record. "prev" is the "hash" of the line before,
// in the first line 64 zeros. "hash" comes last in its line, and is the SHA-256, in 64 hexadecimal digits, of all bytes of the
// line before `,"hash":"`; quotes within strings are escaped, so that these bytes occur only once. In Python:
//
//	import hashlib, json
//	prev = "0" * 64
//	for line in open("record.jsonl", "rb"):
//	    event = json.loads(line)
//	    assert event["prev"] == prev
//	    prev = hashlib.sha256(line.rpartition(b',"hash":"')[0]).hexdigest()
//	    assert event["hash"] == prev
//
// SANDBOX_SESSION comes first. SANDBOX_CHECK, SANDBOX_RUN and SANDBOX_NETWORK follow in the order in which they were
// written. SANDBOX_END is the last event; without it the record is unfinished.
//
// If a crash or a full disk cuts a line off, its bytes stay in the file. The next event ends that line first. It has the key
// "torn", with the number and the SHA-256 of the bytes between the last whole event and itself.
//
// # What it proves
//
// The chain shows that somebody changed, removed, added or moved lines, if that person did not compute all later hashes anew.
// Somebody who can write the file can compute them, and so write another record, or cut the end off and write another end. Two
// things outside the file show that: the hash of the last line (Options.Head), and a signature over it (Sign), which nobody can
// make without the key.
//
// A record has digests of a program's arguments and output, not the arguments and the output, because they may have secrets. If
// only few arguments are possible, the digest shows which one it was.
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

// FileName is the name of a record in its directory.
const FileName = "record.jsonl"

// Format is the version of the format that this package writes and reads.
const Format = 1

// maxLine is the maximum length of a line, in bytes. It has room for thousands of mounts.
const maxLine = 1 << 20

const (
	hashMark = `,"hash":"`
	hashSize = 2 * sha256.Size
	lineTail = hashSize + len(`"}`)
	timeForm = "2006-01-02T15:04:05.000000000Z"
)

// noHash is prev of the first line.
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

// Head names the last event of a record and, through the chain, all events before it.
type Head struct {
	Session string `json:"session"`
	Seq     uint64 `json:"seq"`
	Hash    string `json:"hash"`
}

// header has the keys of every event.
type header struct {
	Seq     uint64 `json:"seq"`
	Time    stamp  `json:"time"`
	Session string `json:"session"`
	Prev    string `json:"prev"`
	Event   string `json:"event"`
	Torn    *Torn  `json:"torn,omitempty"`
}

// Torn describes bytes that are not an event, because the process that wrote one was interrupted.
type Torn struct {
	Line   int    `json:"line,omitempty"` // the line where they begin; only Verify sets it
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

// marshal writes JSON that a terminal can show safely: it escapes everything that is not ASCII.
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

// line is a decoded line.
type line struct {
	header
	hash  string // as the line says
	whole bool   // hash is the hash of the line's content
	data  []byte
}

var errNoEvent = errors.New("it does not end with a hash")

// decode reads a line without its newline. An error means that it is not an event. Without an error the caller still has to
// look at whole.
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
