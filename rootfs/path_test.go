package rootfs

import (
	"errors"
	"io/fs"
	"slices"
	"testing"
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
		if within(c.p, c.dir) != c.within || below(c.p, c.dir) != c.strict {
			t.Errorf("%q in %q: within %v, below %v", c.p, c.dir, within(c.p, c.dir), below(c.p, c.dir))
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
		if got := rebase(c[0], c[1], c[2]); got != c[3] {
			t.Errorf("rebase(%q, %q, %q) = %q, want %q", c[0], c[1], c[2], got, c[3])
		}
	}
}

func TestUps(t *testing.T) {
	same(t, "ups", slices.Collect(ups("/a/b c/d")), []string{"/a/b c/d", "/a/b c", "/a", "/"})
	same(t, "ups of the root", slices.Collect(ups("/")), []string{"/"})
	for p, want := range map[string]int{"/": 0, "/a": 1, "/a/b": 2} {
		if depth(p) != want {
			t.Errorf("depth(%q) = %d", p, depth(p))
		}
	}
	for p, want := range map[string]bool{"/": true, "/a": true, "": false, "a": false, "/a/": false, "/a/..": false, "//a": false, "/a\x00": false} {
		if clean(p) != want {
			t.Errorf("clean(%q) = %v", p, !want)
		}
	}
}

func TestFollow(t *testing.T) {
	tree := host(t, "f /r/d/f", "l /abs /r/d", "l /r/rel d", "l /r/up ../abs/./f", "l /top ../../r", "l /loop1 /loop2", "l /loop2 loop1/x",
		"l /dangling /no/where", "l /r/d/self .", "l /slash /r//d/")
	for _, c := range []struct {
		path, real string
		links      int
		err        error
	}{
		{"/", "/", 0, nil},
		{"/r/d/f", "/r/d/f", 0, nil},
		{"/abs/f", "/r/d/f", 1, nil},
		{"/r/rel", "/r/d", 1, nil},
		{"/r/up", "/r/d/f", 2, nil},
		{"/top/d", "/r/d", 1, nil},
		{"/slash/f", "/r/d/f", 1, nil},
		{"/r/d/self/self/self/f", "/r/d/f", 3, nil},
		{"/dangling", "/no/where", 1, fs.ErrNotExist},
		{"/dangling/x/y", "/no/where/x/y", 1, fs.ErrNotExist},
		{"/r/d/f/below", "/r/d/f/below", 0, fs.ErrNotExist},
		{"/loop1", "/loop1", maxLinks + 1, errLoop},
	} {
		tr, err := follow(tree, c.path)
		if tr.real != c.real || len(tr.links) != c.links || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("follow(%q) = %q, %d links, %v; want %q, %d, %v", c.path, tr.real, len(tr.links), err, c.real, c.links, c.err)
		}
	}
	tr, _ := follow(tree, "/r/up")
	if want := []link{{"/r/up", "../abs/./f", true}, {"/abs", "/r/d", false}}; !slices.Equal(tr.links, want) {
		t.Errorf("links on the way: %+v", tr.links)
	}
}

// countTree counts what is asked of it.
type countTree struct {
	*fakeTree
	lstats int
}

func (c *countTree) Lstat(p string) (Info, error) {
	c.lstats++
	return c.fakeTree.Lstat(p)
}

func TestMemoTree(t *testing.T) {
	count := &countTree{fakeTree: host(t, "f /a/b/c")}
	memo := &memoTree{Tree: count, seen: map[string]statResult{}}
	for range 5 {
		if _, err := follow(memo, "/a/b/c"); err != nil {
			t.Error(err)
		}
		if _, err := follow(memo, "/a/no"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	if count.lstats != 4 {
		t.Errorf("asked %d times about 4 paths", count.lstats)
	}
}
