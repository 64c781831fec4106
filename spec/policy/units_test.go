package policy

import (
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
