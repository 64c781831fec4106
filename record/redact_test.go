package record

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/secret"
)

const (
	keyA = "sk-abcdefghijklmnop"
	keyB = "ghijklmnopqrstuvwx" // begins within keyA
	keyC = "bcdefghijklmnopq"   // overlaps both
)

// slowly redacts by looking at each place for each value: what a Redactor must do.
func slowly(env map[string]string, text []byte) []byte {
	type hit struct {
		from, to int
		name     string
	}
	var hits []hit // in order of their beginnings, the longest first
	for at := range text {
		var best hit
		for name, value := range env {
			for _, form := range forms(value) {
				if secret.Redacted(name, value) && bytes.HasPrefix(text[at:], []byte(form)) {
					h := hit{at, at + len(form), name}
					if h.to > best.to || h.to == best.to && h.name < best.name {
						best = h
					}
				}
			}
		}
		if best.to > 0 {
			hits = append(hits, best)
		}
	}
	var out []byte
	done := 0
	for i := 0; i < len(hits); {
		h := hits[i]
		from, to, length := h.from, h.to, h.to-h.from
		for i++; i < len(hits) && hits[i].from < to; i++ {
			to = max(to, hits[i].to)
			if n := hits[i].to - hits[i].from; n > length {
				length, h.name = n, hits[i].name
			}
		}
		out = append(append(out, text[done:from]...), "<"+h.name+">"...)
		done = to
	}
	return append(out, text[done:]...)
}

func TestRedact(t *testing.T) {
	env := map[string]string{
		"A_API_KEY": keyA, "B_TOKEN": keyB, "SAME_SECRET": keyA, "SHORT_KEY": "fifteen-letters", "PATH": "/usr/local/bin:/usr/bin",
		"BYTES_KEY": "\xff\x00\xfe0123456789abc", "RUN_KEY": "aaaaaaaaaaaaaaaa", "KEY": "a-key-without-underscore", "LONG_KEY": keyA + "-and-more",
		"NEXT_TOKEN": "öööööööööööööööö", "PEM_KEY": "-----BEGIN-----\n\"<\\\a>\"\n",
	}
	r := NewRedactor(env)
	for text, want := range map[string]string{
		"":                                          "",
		"nothing":                                   "nothing",
		keyA:                                        "<A_API_KEY>",
		"x" + keyA + "y" + keyB + "z":               "x<A_API_KEY>y<B_TOKEN>z",
		keyA + keyA:                                 "<A_API_KEY><A_API_KEY>",
		keyA[:len(keyA)-1]:                          keyA[:len(keyA)-1],
		keyA + "-and-mor":                           "<A_API_KEY>-and-mor",
		keyA + "-and-more":                          "<LONG_KEY>",
		"sk-abcdefghijklmnopqrstuvwxyz":             "<A_API_KEY>yz", // both: no part of either is left
		"sk-abcdefsk-" + keyA[3:]:                   "sk-abcdef<A_API_KEY>",
		"fifteen-letters":                           "fifteen-letters",
		"a-key-without-underscore":                  "a-key-without-underscore",
		"/usr/local/bin:/usr/bin":                   "/usr/local/bin:/usr/bin",
		"1\xff\x00\xfe0123456789abc\xff":            "1<BYTES_KEY>\xff",
		strings.Repeat("a", 15):                     strings.Repeat("a", 15),
		strings.Repeat("a", 1000) + "b" + keyB:      "<RUN_KEY>b<B_TOKEN>",
		"öööööööööööööööö\n":                        "<NEXT_TOKEN>\n",
		"[-----BEGIN-----\n\"<\\\a>\"\n]":           "[<PEM_KEY>]",
		`"-----BEGIN-----\n\"<\\\a>\"\n": no`:       `"<PEM_KEY>": no`,
		`{"a":"-----BEGIN-----\n\"<\\\u0007>\"\n"}`: `{"a":"<PEM_KEY>"}`,
	} {
		if got := r.String(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
		if got := string(slowly(env, []byte(text))); got != want {
			t.Errorf("slowly, %q became %q, want %q", text, got, want)
		}
	}
	if NewRedactor(map[string]string{"SHORT_KEY": "short", "PATH": strings.Repeat("x", 20)}) != nil {
		t.Error("a Redactor of nothing")
	}
	if got := (*Redactor)(nil).String(keyA); got != keyA {
		t.Errorf("nil redacts: %q", got)
	}
	if got := r.Strings([]string{"a", keyB}); got[0] != "a" || got[1] != "<B_TOKEN>" {
		t.Errorf("Strings: %q", got)
	}
}

// The writer holds back only bytes that may be the prefix of a value.
func TestRedactHoldsLittle(t *testing.T) {
	r := NewRedactor(map[string]string{"A_KEY": keyA, "RUN_KEY": strings.Repeat("a", 16)})
	var out bytes.Buffer
	w := r.Writer(&out)
	for _, step := range []struct{ in, out string }{
		{"hello s", "hello "},
		{"k-abcdef", ""},
		{"ghi\n", "sk-abcdefghi\n"},
		{"x" + keyA, "x<A_KEY>"},
		{"sk-abc", ""},
		{"sk-abc", "sk-abc"},
	} {
		out.Reset()
		if n, err := w.Write([]byte(step.in)); n != len(step.in) || err != nil {
			t.Fatalf("write %q: %d, %v", step.in, n, err)
		}
		if out.String() != step.out {
			t.Errorf("after %q: %q, want %q", step.in, out.String(), step.out)
		}
	}
	out.Reset()
	if err := w.Close(); err != nil || out.String() != "sk-abc" {
		t.Errorf("at the end: %q, %v", out.String(), err)
	}

	// A value that goes on and on is not kept.
	w = r.Writer(&out)
	for range 1000 {
		_, _ = w.Write(bytes.Repeat([]byte("a"), 1000))
	}
	if cap(w.held) > 4096 {
		t.Errorf("%d bytes are held", cap(w.held))
	}
	out.Reset()
	if err := w.Close(); err != nil || out.String() != "<RUN_KEY>" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken") }

func TestRedactErrors(t *testing.T) {
	w := NewRedactor(map[string]string{"A_KEY": keyA}).Writer(broken{})
	if _, err := w.Write([]byte("plain")); err == nil {
		t.Error("no error of a plain write")
	}
	if _, err := w.Write([]byte("plain" + keyA)); err == nil {
		t.Error("no error of a write with a value")
	}
}

// Text that is made to begin a value again and again takes no longer than another.
func TestRedactIsLinear(t *testing.T) {
	value := strings.Repeat("a", 20_000) + "b"
	r := NewRedactor(map[string]string{"A_KEY": value, "B_KEY": value[10_000:] + "c"})
	text := bytes.Repeat([]byte(strings.Repeat("a", 19_999)+"x"), 200)
	start := time.Now()
	var out bytes.Buffer
	w := r.Writer(&out)
	for part := range chunks(text, 32<<10) {
		_, _ = w.Write(part)
	}
	_ = w.Close()
	if took := time.Since(start); took > 5*time.Second { // it is about 0.1 s; quadratic would be minutes
		t.Errorf("%d bytes took %v", len(text), took)
	}
	if !bytes.Equal(out.Bytes(), text) {
		t.Error("text without a value has changed")
	}
}

func chunks(b []byte, size int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			n := min(size, len(b))
			if !yield(b[:n:n]) {
				return
			}
			b = b[n:]
		}
	}
}

// split writes a text in parts of random length.
func split(r *Redactor, text []byte, seed uint64) []byte {
	rnd := rand.New(rand.NewPCG(seed, 0))
	var out bytes.Buffer
	w := r.Writer(&out)
	for len(text) > 0 {
		n := 1 + rnd.IntN(min(len(text), 24))
		_, _ = w.Write(text[:n])
		text = text[n:]
	}
	_ = w.Close()
	return out.Bytes()
}

// With three letters values overlap in every way there is.
func TestRedactAsSlowly(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	letters := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = "ab\xff"[rnd.IntN(20)/9%3]
		}
		return b
	}
	for range 3000 {
		env := map[string]string{}
		text := letters(rnd.IntN(40))
		for _, name := range []string{"A_KEY", "B_KEY", "C_TOKEN", "D_SECRET"} {
			value := letters(secret.MinLength + rnd.IntN(8))
			if rnd.IntN(2) == 0 && len(text) > secret.MinLength { // one that overlaps what there is
				value = append(bytes.Clone(text[len(text)-secret.MinLength+rnd.IntN(4):]), value[:12]...)
			}
			env[name] = string(value)
			text = append(text, value[rnd.IntN(4)*rnd.IntN(5):]...)
			text = append(text, letters(rnd.IntN(20))...)
		}
		compare(t, env, text, rnd.Uint64())
	}
}

func compare(t *testing.T, env map[string]string, text []byte, seed uint64) {
	t.Helper()
	want := slowly(env, text)
	r := NewRedactor(env)
	if r == nil {
		return
	}
	if got := r.String(string(text)); got != string(want) {
		t.Fatalf("%q in\n%q became\n%q, want\n%q", env, text, got, want)
	}
	if got := split(r, text, seed); !bytes.Equal(got, want) {
		t.Fatalf("%q in\n%q, split, became\n%q, want\n%q", env, text, got, want)
	}
}

func FuzzRedact(f *testing.F) {
	f.Add(keyA, keyB, keyC, []byte("sk-abcdefghijklmnopqrstuvwxyz"), uint64(1))
	f.Add("aaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaab", "", []byte(strings.Repeat("a", 50)+"b"), uint64(2))
	f.Fuzz(func(t *testing.T, a, b, c string, text []byte, seed uint64) {
		if len(text) > 1000 {
			return
		}
		// What was made up is mixed with the values, or it would hardly ever hold one.
		text = append(append(append(append(text, a...), b...), text...), c...)
		compare(t, map[string]string{"A_KEY": a, "B_TOKEN": b, "C_SECRET": c}, text, seed)
	})
}

func BenchmarkRedact(b *testing.B) {
	r := NewRedactor(map[string]string{"A_KEY": keyA, "B_KEY": keyB})
	text := bytes.Repeat([]byte("a line of output as programs write it, some skipped\n"), 600)
	b.SetBytes(int64(len(text)))
	var out bytes.Buffer
	for b.Loop() {
		out.Reset()
		_, _ = r.Writer(&out).Write(text)
	}
}
