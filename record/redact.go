package record

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// SecretLength is how many characters a value has at least that is taken for a key's: shorter ones stand in all kinds of
// text by chance.
const SecretLength = 16

// SecretEnds are the ends of the names of such variables.
func SecretEnds() []string { return []string{"_KEY", "_TOKEN", "_SECRET"} }

// Secret says whether a variable is taken for a key by its name and the length of its value.
func Secret(name, value string) bool {
	for _, end := range SecretEnds() {
		if strings.HasSuffix(name, end) {
			return utf8.RuneCountInString(value) >= SecretLength
		}
	}
	return false
}

// Redactor replaces the values of key-like variables by <NAME>. A nil one changes nothing.
//
// It looks for the bytes of a value as they are, and as JSON and Go's %q write them between quotes. What is encoded in any
// other way must be redacted before. A program that wants to give a key away can always write it differently; this is
// against keys that are kept by accident.
//
// No byte of a value is let through, wherever two of them overlap. What overlaps becomes one <NAME>, that of the longest
// value in it, of equally long ones the first.
type Redactor struct {
	nodes  []node     // the trie of all values, with the links of Aho and Corasick; the first is its root
	begins [256]int32 // the root's children
	names  []string   // what takes a value's place
	sizes  []int      // how long the values are, in bytes
}

// node stands for the beginning of a value.
type node struct {
	child, sibling int32 // 0: none
	fail           int32 // the longest other beginning that this one ends with
	depth          int32 // how long it is
	value          int32 // 1 + the longest value that this ends with; 0: none
	last           byte
}

// NewRedactor makes a Redactor of an environment, from which it picks the secrets. It is nil where there is none.
func NewRedactor(env map[string]string) *Redactor {
	var r *Redactor
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := env[name]
		if !Secret(name, value) || seen[value] {
			continue
		}
		if r == nil {
			r = &Redactor{nodes: make([]node, 1)}
		}
		for _, form := range forms(value) {
			if !seen[form] {
				seen[form] = true
				r.add(name, form)
			}
		}
	}
	if r != nil {
		r.link()
	}
	return r
}

// forms are the ways in which a value is looked for.
func forms(value string) []string {
	quoted := strconv.Quote(value)
	var inJSON strings.Builder
	enc := json.NewEncoder(&inJSON)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value) // a string is always encoded
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

// link fills in fail and value, the shorter beginnings first.
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

// step goes on by one byte. Each failure makes the beginning shorter, each byte longer by one: all in all it is linear.
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
	_, _ = io.WriteString(w, s) // a Builder takes everything
	_ = w.Close()
	return out.String()
}

// Strings redacts each of a list, in a new one.
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

// RedactingWriter passes a stream on without the values, however it is cut into writes. The end of what was written stays
// back for as long as it may be the beginning of a value: to let it go after some time would give away a key that a
// program writes slowly.
type RedactingWriter struct {
	r     *Redactor
	to    io.Writer
	state int32   // the longest beginning of a value that the stream ends with now
	at    int64   // so many bytes were written
	done  int64   // so many of them have been passed on or replaced
	held  []byte  // the others
	found []found // values among them, in order, none overlapping another
	out   []byte
}

// found is where values were found that overlap, and the longest of them.
type found struct {
	from, to int64
	value    int32
}

// Writer makes one that writes to another. Close says that the stream has ended; it does not close the other. The
// Redactor must not be nil.
func (r *Redactor) Writer(to io.Writer) *RedactingWriter { return &RedactingWriter{r: r, to: to} }

// Write never changes p, and an error is the other writer's.
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

// search notes the values that end in p.
func (w *RedactingWriter) search(p []byte) {
	r := w.r
	for i, b := range p {
		if w.state == 0 && r.begins[b] == 0 {
			continue // as almost always
		}
		w.state = r.step(w.state, b)
		if v := r.nodes[w.state].value; v != 0 {
			end := w.at + int64(i) + 1
			w.note(found{end - int64(r.sizes[v-1]), end, v})
		}
		for w.state != 0 && r.nodes[w.state].child == 0 { // a whole value, which does not go on
			w.state = r.nodes[w.state].fail
		}
	}
}

// Close passes on what has stayed back.
func (w *RedactingWriter) Close() error {
	w.state = 0
	return w.settle(w.at)
}

// note adds a value that ends where the stream does. Those that it overlaps become one with it.
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

// settle passes on what stands before a place at which, or behind which, every value begins that is still to be found.
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
		if f.to > limit { // it may go on, but all before limit is gone for good
			w.done = limit
			break
		}
		w.out = append(w.out, w.r.names[f.value-1]...)
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
