package forkexec

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzJSONText: what answer.c writes of a program's output is what encoding/json writes, and nothing where that would not be all.
func FuzzJSONText(f *testing.F) {
	for _, s := range []string{
		"", "text\n", "a\xffb", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x00\x01\b\t\n\v\f\r\x1b\x1f\x7f", `"\/<>&'`,
		"a\u2028b\u2029c\u202a\u2027", "\u0080\u07ff\u0800\uffff\U00010000\U0010ffff", "\ufffd", strings.Repeat("\"\u2028x", 1000),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := jsonText(text)
		if ok != utf8.Valid(text) {
			t.Fatalf("%q: it is text: %v", text, ok)
		}
		if !ok {
			return
		}
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(string(text)); err != nil {
			t.Fatal(err)
		}
		if want := strings.TrimSuffix(buf.String(), "\n"); `"`+got+`"` != want {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
	})
}
