package policy

import (
	"strings"
	"testing"
)

func TestPaths(t *testing.T) {
	s := &scope{
		&loader{in: Input{Home: "/home/u", Env: map[string]string{"D": "/data/", "REL": "a/b", "X_1": "/x", "T": "~"}}},
		source{dir: "/p"},
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
