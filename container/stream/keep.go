package stream

import (
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/sandboxrun/sandboxrun/container/journal"
)

// DefaultOutput is how many bytes of each stream are kept where the policy does not say.
const DefaultOutput = 4 << 20

// Keeper keeps the beginning and the end of a stream, in bounded memory, and counts it all.
type Keeper struct {
	mu    sync.Mutex
	limit int
	head  []byte
	tail  []byte // a ring once it is full
	next  int    // where the ring goes on
	total int64
	away  bool    // the stream goes to somebody else: it is only counted here
	files []*File // that it is written to besides
}

// Total counts the bytes of the whole stream.
func (k *Keeper) Total() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.total
}

// NewKeeper keeps at most limit bytes.
func NewKeeper(limit int64) *Keeper { return &Keeper{limit: int(limit)} }

// Restore is what was kept by somebody else: head, and tail as a ring that goes on at next, of a stream of so many bytes. away
// says that the stream went to somebody else.
func Restore(limit int, head, tail []byte, next int, total int64, away bool) *Keeper {
	return &Keeper{limit: limit, head: head, tail: tail, next: next, total: total, away: away}
}

// Write never fails and never keeps more than the limit.
func (k *Keeper) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(p)
	k.total += int64(n)
	if room := k.limit/2 - len(k.head); room > 0 {
		take := min(room, len(p))
		k.head = append(k.head, p[:take]...)
		p = p[take:]
	}
	size := k.limit - k.limit/2
	if len(p) > size {
		p = p[len(p)-size:]
		k.next = 0
		k.tail = k.tail[:0]
	}
	for len(p) > 0 {
		if len(k.tail) < size {
			take := min(size-len(k.tail), len(p))
			k.tail = append(k.tail, p[:take]...)
			p = p[take:]
			continue
		}
		n := copy(k.tail[k.next:], p)
		p = p[n:]
		k.next = (k.next + n) % size
	}
	return n, nil
}

// Content is what was kept, and whether something is missing from it. A line in its place says how much is missing; neither
// part then ends or begins inside a character.
func (k *Keeper) Content() ([]byte, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	tail := append(append([]byte(nil), k.tail[k.next:]...), k.tail[:k.next]...)
	missing := k.total - int64(len(k.head)) - int64(len(tail))
	if missing <= 0 || k.away {
		return append(append([]byte(nil), k.head...), tail...), false
	}
	head := k.head[:len(k.head)-journal.PartialEnd(k.head)]
	tail = tail[partialStart(tail):]
	out := append([]byte(nil), head...)
	out = fmt.Appendf(out, "\n[... %d bytes left out ...]\n", k.total-int64(len(head))-int64(len(tail)))
	return append(out, tail...), true
}

// partialStart counts the bytes at the start that go on with a character.
func partialStart(b []byte) int {
	n := 0
	for n < min(utf8.UTFMax-1, len(b)) && !utf8.RuneStart(b[n]) {
		n++
	}
	if n == utf8.UTFMax-1 && n < len(b) && !utf8.RuneStart(b[n]) {
		return 0 // no text at all
	}
	return n
}

// pump copies a stream to its end. Once the writer fails, src is closed, so that the writer of src gets SIGPIPE as it
// would without us: by SIGPIPE.
func pump(dst io.Writer, src io.ReadCloser) {
	_, _ = io.Copy(dst, src)
	src.Close()
}
