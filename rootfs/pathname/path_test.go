package pathname_test

import (
	"slices"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		p, dir         string
		within, strict bool
	}{
		{"/a", "/a", true, false},
		{"/a/b", "/a", true, true},
		{"/a/b/c", "/a", true, true},
		{"/ab", "/a", false, false},
		{"/a", "/a/b", false, false},
		{"/a", "/", true, true},
		{"/", "/", true, false},
		{"/", "/a", false, false},
		{"/a ", "/a", false, false},
		{"/a\n/b", "/a\n", true, true},
	} {
		if pathname.Within(c.p, c.dir) != c.within || pathname.Below(c.p, c.dir) != c.strict {
			t.Errorf("%q in %q: within %v, below %v", c.p, c.dir, pathname.Within(c.p, c.dir), pathname.Below(c.p, c.dir))
		}
	}
}

func TestRebase(t *testing.T) {
	for _, c := range [][4]string{
		{"/a", "/a", "/b", "/b"},
		{"/a/x/y", "/a", "/b", "/b/x/y"},
		{"/a/x", "/a", "/", "/x"},
		{"/a/x", "/", "/w", "/w/a/x"},
		{"/", "/", "/w", "/w"},
		{"/x", "/", "/", "/x"},
	} {
		if got := pathname.Rebase(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("rebase(%q, %q, %q) = %q, want %q", c[0], c[1], c[2], got, c[3])
		}
	}
}

func TestUps(t *testing.T) {
	roottest.Same(t, "ups", slices.Collect(pathname.Ups("/a/b c/d")), []string{"/a/b c/d", "/a/b c", "/a", "/"})
	roottest.Same(t, "ups of the root", slices.Collect(pathname.Ups("/")), []string{"/"})
	for p, want := range map[string]int{"/": 0, "/a": 1, "/a/b": 2} {
		if pathname.Depth(p) != want {
			t.Errorf("depth(%q) = %d", p, pathname.Depth(p))
		}
	}
	for p, want := range map[string]bool{"/": true, "/a": true, "": false, "a": false, "/a/": false, "/a/..": false, "//a": false, "/a\x00": false} {
		if pathname.Clean(p) != want {
			t.Errorf("clean(%q) = %v", p, !want)
		}
	}
}

func TestRest(t *testing.T) {
	for _, c := range []struct {
		p, dir, rest string
		ok           bool
	}{
		{"/a", "/a", ".", true},
		{"/", "/", ".", true},
		{"/a/b", "/", "a/b", true},
		{"/a/b/c", "/a", "b/c", true},
		{"/ab", "/a", "", false},
		{"/", "/a", "", false},
		{"", "/a", "", false},
	} {
		if rest, ok := pathname.Rest(c.p, c.dir); rest != c.rest || ok != c.ok {
			t.Errorf("Rest(%q, %q) = %q, %v", c.p, c.dir, rest, ok)
		}
	}
}
