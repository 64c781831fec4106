package record

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxrun/sandboxrun/secret"
)

// Redactor replaces the values of key-like variables by <NAME>. A nil Redactor changes nothing.
//
// It searches for the bytes of a value, and for the forms that JSON and Go's %q give it between quotes. Text in another encoding
// must be redacted before it is encoded. A program that wants to give a key away can always write it in another form; redaction
// protects against keys that are stored by accident.
//
// No byte of a value passes, even if two values overlap. Overlapping values become one <NAME>: that of the longest value, or of
// the first of equally long ones.
type Redactor struct {
	nodes  []node     // the trie of all values, with the failure links of Aho and Corasick; the first node is the root
	begins [256]int32 // the root's children
	names  []string   // what replaces a value
	sizes  []int      // lengths of the values, in bytes
}

// node is a prefix of a value.
type node struct {
	child, sibling int32 // 0: none
	fail           int32 // the longest other prefix that is a suffix of this one
	depth          int32 // its length
	value          int32 // 1 + the index of the longest value that is a suffix of this prefix; 0: none
	last           byte
}

// NewRedactor makes a Redactor for the secrets of environments. It is nil if they have none. A value that several variables have gets
// the first one's name.
func NewRedactor(envs ...map[string]string) *Redactor {
	r := &Redactor{nodes: make([]node, 1)}
	seen := map[string]bool{}
	for _, env := range envs {
		r.addAll(env, seen)
	}
	if len(r.names) == 0 {
		return nil
	}
	r.link()
	return r
}

func (r *Redactor) addAll(env map[string]string, seen map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := env[name]
		if !secret.Redacted(name, value) || seen[value] {
			continue
		}
		for _, form := range forms(value) {
			if !seen[form] {
				seen[form] = true
				r.add(name, form)
			}
		}
	}
}

// forms are the forms of a value that the Redactor searches for.
func forms(value string) []string {
	quoted := strconv.Quote(value)
	var inJSON strings.Builder
	enc := json.NewEncoder(&inJSON)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value) // a string always encodes
	text := strings.TrimSuffix(inJSON.String(), "\n")
	return []string{value, quoted[1 : len(quoted)-1], text[1 : len(text)-1]}
}

func (r *Redactor) add(name, value string) {
	at := int32(0)
	for i := range len(value) {
		next := r.child(at, value[i])
		if next == 0 {
			next = int32(len(r.nodes))
			r.nodes = append(r.nodes, node{sibling: r.nodes[at].child, depth: int32(i + 1), last: value[i]})
			r.nodes[at].child = next
			if at == 0 {
				r.begins[value[i]] = next
			}
		}
		at = next
	}
	r.names, r.sizes = append(r.names, "<"+name+">"), append(r.sizes, len(value))
	r.nodes[at].value = int32(len(r.names))
}

func (r *Redactor) child(at int32, b byte) int32 {
	if at == 0 {
		return r.begins[b]
	}
	for at = r.nodes[at].child; at != 0 && r.nodes[at].last != b; at = r.nodes[at].sibling {
	}
	return at
}

// link sets fail and value, shorter prefixes first.
func (r *Redactor) link() {
	queue := []int32{0}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for c := r.nodes[at].child; c != 0; c = r.nodes[c].sibling {
			n := &r.nodes[c]
			if at != 0 {
				n.fail = r.step(r.nodes[at].fail, n.last)
			}
			if n.value == 0 {
				n.value = r.nodes[n.fail].value
			}
			queue = append(queue, c)
		}
	}
}

// step continues with one byte. A failure shortens the prefix, a byte makes it longer by one, so the whole search is linear.
func (r *Redactor) step(at int32, b byte) int32 {
	for {
		next := r.child(at, b)
		if next != 0 || at == 0 {
			return next
		}
		at = r.nodes[at].fail
	}
}

// String redacts a text.
func (r *Redactor) String(s string) string {
	if r == nil || s == "" {
		return s
	}
	var out strings.Builder
	w := r.Writer(&out)
	_, _ = io.WriteString(w, s) // a Builder never fails
	_ = w.Close()
	return out.String()
}

// Strings returns a new list with each text redacted.
func (r *Redactor) Strings(list []string) []string {
	if r == nil || list == nil {
		return list
	}
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = r.String(s)
	}
	return out
}

// RedactingWriter passes a stream on with its values redacted, however the stream is cut into writes. It holds back the end of the
// stream while that may be the prefix of a value. There is no timeout, because a timeout would give away a key that a program
// writes slowly.
type RedactingWriter struct {
	// SameLength replaces a value by as many bytes as it has: its name, cut or filled up with "*". Binary formats keep their offsets.
	SameLength bool

	r     *Redactor
	to    io.Writer
	state int32   // the longest prefix of a value that is a suffix of the stream
	at    int64   // number of bytes written
	done  int64   // number of bytes passed on or replaced
	held  []byte  // the bytes that are neither
	found []found // values in held, in order, without overlaps
	count []int   // replaced so far, by value
	out   []byte
}

// found is the range of overlapping values, and the longest of them.
type found struct {
	from, to int64
	value    int32
}

// Writer returns a RedactingWriter that writes to w. Close ends the stream and does not close w. The Redactor must not be nil.
func (r *Redactor) Writer(to io.Writer) *RedactingWriter { return &RedactingWriter{r: r, to: to} }

// Write never changes p. Its error is that of the underlying writer.
func (w *RedactingWriter) Write(p []byte) (int, error) {
	quiet := len(w.held) == 0 && len(w.found) == 0
	w.search(p)
	w.at += int64(len(p))
	if quiet && w.state == 0 && len(w.found) == 0 {
		w.done = w.at
		return w.to.Write(p)
	}
	w.held = append(w.held, p...)
	if err := w.settle(w.at - int64(w.r.nodes[w.state].depth)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// search records the values that end in p.
func (w *RedactingWriter) search(p []byte) {
	r := w.r
	for i, b := range p {
		if w.state == 0 && r.begins[b] == 0 {
			continue // the most frequent case
		}
		w.state = r.step(w.state, b)
		if v := r.nodes[w.state].value; v != 0 {
			end := w.at + int64(i) + 1
			w.note(found{end - int64(r.sizes[v-1]), end, v})
		}
		for w.state != 0 && r.nodes[w.state].child == 0 { // a whole value that is no prefix of another
			w.state = r.nodes[w.state].fail
		}
	}
}

// Close passes on the bytes that were held back.
func (w *RedactingWriter) Close() error {
	w.state = 0
	return w.settle(w.at)
}

// note adds a value that ends at the end of the stream. Values that overlap it merge with it.
func (w *RedactingWriter) note(f found) {
	for n := len(w.found); n > 0 && w.found[n-1].to > f.from; n = len(w.found) {
		before := w.found[n-1]
		f.from = min(f.from, before.from)
		if w.r.sizes[before.value-1] >= w.r.sizes[f.value-1] {
			f.value = before.value
		}
		w.found = w.found[:n-1]
	}
	w.found = append(w.found, f)
}

func (w *RedactingWriter) replace(f found) {
	if w.count == nil {
		w.count = make([]int, len(w.r.names))
	}
	w.count[f.value-1]++
	name := w.r.names[f.value-1]
	if n := int(f.to - f.from); w.SameLength {
		name = (name + strings.Repeat("*", n))[:n]
	}
	w.out = append(w.out, name...)
}

// Replaced is how many values were replaced so far, by the name of their variable.
func (w *RedactingWriter) Replaced() map[string]int {
	counts := map[string]int{}
	for i, n := range w.count {
		if n > 0 {
			name := w.r.names[i]
			counts[name[1:len(name)-1]] += n
		}
	}
	return counts
}

// settle passes on the bytes before limit. Every value that is still to be found begins at limit or later.
func (w *RedactingWriter) settle(limit int64) error {
	start := w.done
	plain := func(to int64) {
		if to > w.done {
			w.out = append(w.out, w.held[w.done-start:to-start]...)
			w.done = to
		}
	}
	n := 0
	for ; n < len(w.found) && w.found[n].from < limit; n++ {
		f := w.found[n]
		plain(f.from)
		if f.to > limit { // the value may become longer, but its part before limit is decided
			w.done = limit
			break
		}
		w.replace(f)
		w.done = f.to
	}
	if n == len(w.found) || w.found[n].from >= limit {
		plain(limit)
	}
	w.found = append(w.found[:0], w.found[n:]...)
	w.held = append(w.held[:0], w.held[w.done-start:]...)
	if len(w.out) == 0 {
		return nil
	}
	_, err := w.to.Write(w.out)
	w.out = w.out[:0]
	return err
}
