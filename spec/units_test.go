package spec

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"1": 1, "512": 512, "1K": 1 << 10, "512M": 512 << 20, "3G": 3 << 30, "2T": 2 << 40, "1048576T": 1 << 60,
		"1152921504606846976": 1 << 60,
	} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"": "want bytes", "M": "want bytes", "512m": "want bytes", "512MB": "want bytes", "512MM": "want bytes",
		"1.5G": "want bytes", "-1": "want bytes", "+1": "want bytes", " 1": "want bytes", "1 ": "want bytes", "01": "want bytes",
		"0x10": "want bytes", "1_000": "want bytes", "1KiB": "want bytes", "1e3": "want bytes",
		"0": "must be above 0", "0K": "must be above 0", "1048577T": "above 2^60", "99999999999999999999": "above 2^60",
		"9223372036854775807K": "above 2^60", "1152921504606846977": "above 2^60",
	} {
		if got, err := ParseSize(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseSize(%q) = %d, %v; want %q", in, got, err, want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "30": 30 * time.Second, "1.5": 1500 * time.Millisecond, ".5": 500 * time.Millisecond,
		"5.": 5 * time.Second, "1m30s": 90 * time.Second, "250ms": 250 * time.Millisecond, "1h0m0.5s": time.Hour + time.Second/2,
		"1µs": time.Microsecond, "1ns": 1, "0.000000001": 1, "87600h": maxDuration, "007": 7 * time.Second,
	} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"": "want something", ".": "want something", "1..2": "want something", "s": "want something", "1 s": "want something",
		"1d": "want something", "+5s": "want something", "1e3": "want something", "inf": "want something", "nan": "want something",
		"0x10": "want something", "1_0": "want something", "999999999999h": "want something",
		"-1": "negative", "-1s": "negative", "-0s": "negative", "87601h": "ten years", "315360001": "ten years",
		strings.Repeat("9", 400): "ten years", "0.1ns": "below a nanosecond", "0.00000000001": "below a nanosecond",
	} {
		if got, err := ParseDuration(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseDuration(%q) = %v, %v; want %q", in, got, err, want)
		}
	}
}

func TestPaths(t *testing.T) {
	s := &scope{
		&loader{in: Input{Home: "/home/u", Env: map[string]string{"D": "/data/", "REL": "a/b", "X_1": "/x", "T": "~"}}},
		document{dir: "/p"},
	}
	for in, want := range map[string]string{
		"x": "/p/x", "./x/../y/": "/p/y", "..": "/", "../../../x": "/x", "/a//b/./c/..": "/a/b", "/": "/", ".": "/p",
		"~": "/home/u", "~/x": "/home/u/x", "~//x": "/home/u/x", "$D": "/data", "${D}/x": "/data/x", "$X_1/~": "/x/~",
		"$REL/c": "/p/a/b/c", "$T/x": "/p/~/x",
		"$$D/x": "/p/$D/x", "$$": "/p/$", "$$$$": "/p/$$$", "./$D": "/p/$D", "/a/$D": "/a/$D", "/~": "/~", "./~": "/p/~",
		"a$D": "/p/a$D", "a~": "/p/a~", "/$$x": "/$$x", "/a b \n*[?]\\x ": "/a b \n*[?]\\x ", " x": "/p/ x", "-x": "/p/-x",
		"日本": "/p/日本", "{D}": "/p/{D}", "#": "/p/#", "a:b,c=d": "/p/a:b,c=d", "...": "/p/...",
	} {
		if got, err := s.hostPath(in); err != nil || got != want {
			t.Errorf("hostPath(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"$NO/x": `"NO" is not set`, "${NO}": `"NO" is not set`, "$": "no variable", "$1/x": "no variable", "$D-x/y": "no variable",
		"${D": "no variable", "${}": "no variable", "${D}x": "no variable", "$D}": "no variable", "~u/x": "no home",
		"~~": "no home",
	} {
		if got, err := s.hostPath(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("hostPath(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{"/x/": "/x", "~/x": "/home/u/x", "$D/x": "/data/x"} {
		if got, err := s.insidePath(in); err != nil || got != want {
			t.Errorf("insidePath(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"x", "./x", "$REL", "$$x", "../x"} {
		if got, err := s.insidePath(in); err == nil || !strings.Contains(err.Error(), "not absolute") {
			t.Errorf("insidePath(%q) = %q, %v", in, got, err)
		}
	}
	s.in.Home = ""
	if got, err := s.hostPath("~/x"); err == nil || !strings.Contains(err.Error(), "home directory is not known") {
		t.Errorf("without a home: %q, %v", got, err)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"a", "", 1},
		{"read", "raed", 1},
		{"read", "read", 0},
		{"read", "reads", 1},
		{"read", "rea", 1},
		{"read", "rood", 2},
		{"ab", "ba", 1},
		{"abc", "xyz", 3},
		{"a", "abcd", 3},
		{"files.read", "files.wread", 1},
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
		if got := distance(c.b, c.a); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.b, c.a, got, c.want)
		}
	}
}

func TestCursor(t *testing.T) {
	data := []byte("ab\néx日\r\n\nlast")
	c := newCursor(data)
	for _, w := range []struct{ offset, line, column int }{
		{0, 1, 1},
		{2, 1, 3},
		{3, 2, 1},
		{5, 2, 2},
		{6, 2, 3},
		{9, 2, 4},
		{11, 3, 1},
		{12, 4, 1},
		{16, 4, 5},
		{99, 4, 5},
		{6, 2, 3},
		{5, 2, 2},
		{0, 1, 1},
		{-1, 1, 1},
		{13, 4, 2},
	} {
		if got := c.position(w.offset); got != (position{w.line, w.column}) {
			t.Errorf("position(%d) = %v, want %v", w.offset, got, w)
		}
	}
}

// writeNode shows a node with its places, to compare what the two readers make.
func writeNode(b *strings.Builder, n *node, depth int) {
	fmt.Fprintf(b, "%s %d:%d", n.kind, n.at.line, n.at.column)
	switch n.kind {
	case stringNode:
		fmt.Fprintf(b, " %q", n.text)
	case integerNode:
		fmt.Fprintf(b, " %d", n.integer)
	case floatNode:
		fmt.Fprintf(b, " %g", n.float)
	case boolNode:
		fmt.Fprintf(b, " %t", n.yes)
	}
	b.WriteString("\n")
	for _, item := range n.items {
		b.WriteString(strings.Repeat(" ", depth+1) + "- ")
		writeNode(b, item, depth+1)
	}
	for _, f := range n.fields {
		fmt.Fprintf(b, "%s%s@%d:%d = ", strings.Repeat(" ", depth+1), f.name, f.at.line, f.at.column)
		writeNode(b, f.value, depth+1)
	}
}

func TestReaders(t *testing.T) {
	for _, c := range []struct {
		read       func([]byte) (*node, *fault)
		data, want string
	}{
		{readTOML, `a = [ # x, [
  1, [ "b" ], # y
  { c = 'd' , e.f = 0x1_0 }, [] ] # z
b . "c d" = """
x"""
[t.u]
v = 1_0.5
[[t.l]]
w = true
[t.l.m]
[[t.l]]
`, `a table 1:1
 a@1:1 = a list 1:5
  - an integer 2:3 1
  - a list 2:6
   - a string 2:8 "b"
  - a table 3:3
   c@3:5 = a string 3:9 "d"
   e@3:15 = a table 3:15
    f@3:17 = an integer 3:21 16
  - a list 3:30
 b@4:1 = a table 4:1
  c d@4:5 = a string 4:13 "x"
 t@6:2 = a table 6:2
  u@6:4 = a table 6:4
   v@7:1 = a number with a fraction 7:5 10.5
  l@8:5 = a list 8:5
   - a table 8:5
    w@9:1 = true or false 9:5 true
    m@10:6 = a table 10:6
   - a table 11:5
`},
		{readJSON, "\n{\"a\" : [1 ,[], \n{\"b\": -2.5e1}, false],\t\"c\\n\":null, \"d\":{}}\n", `a table 2:1
 a@2:2 = a list 2:8
  - an integer 2:9 1
  - a list 2:12
  - a table 3:1
   b@3:2 = a number with a fraction 3:7 -25
  - true or false 3:16 false
 c
@3:24 = null 3:30
 d@3:36 = a table 3:40
`},
	} {
		n, f := c.read([]byte(c.data))
		if f != nil {
			t.Fatal(f)
		}
		var b strings.Builder
		writeNode(&b, n, 0)
		if b.String() != c.want {
			t.Errorf("%s\n got\n%s\nwant\n%s", c.data, b.String(), c.want)
		}
	}
}
