package hostfs_test

import (
	"errors"
	"io/fs"
	"slices"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

func TestFollow(t *testing.T) {
	tree := roottest.Host(t, "f /r/d/f", "l /abs /r/d", "l /r/rel d", "l /r/up ../abs/./f", "l /top ../../r", "l /loop1 /loop2", "l /loop2 loop1/x",
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
		{"/loop1", "/loop1", pathname.MaxLinks + 1, pathname.ErrLoop},
	} {
		tr, err := hostfs.Follow(tree, c.path)
		if tr.Real != c.real || len(tr.Links) != c.links || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("follow(%q) = %q, %d links, %v; want %q, %d, %v", c.path, tr.Real, len(tr.Links), err, c.real, c.links, c.err)
		}
	}
	tr, _ := hostfs.Follow(tree, "/r/up")
	if want := []pathname.Link{{At: "/r/up", Text: "../abs/./f", Last: true}, {At: "/abs", Text: "/r/d", Last: false}}; !slices.Equal(tr.Links, want) {
		t.Errorf("links on the way: %+v", tr.Links)
	}
}

func TestMemoTree(t *testing.T) {
	count := &countTree{Tree: roottest.Host(t, "f /a/b/c")}
	memo := hostfs.NewMemo(count)
	for range 5 {
		if _, err := hostfs.Follow(memo, "/a/b/c"); err != nil {
			t.Error(err)
		}
		if _, err := hostfs.Follow(memo, "/a/no"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	if count.lstats != 4 {
		t.Errorf("asked %d times about 4 paths", count.lstats)
	}
}

// countTree counts what is asked of it.
type countTree struct {
	*roottest.Tree
	lstats int
}

func (c *countTree) Lstat(p string) (hostfs.Info, error) {
	c.lstats++
	return c.Tree.Lstat(p)
}
