package hostfs_test

import (
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

func TestLocations(t *testing.T) {
	p := hostfs.NewLocations(roottest.Host(t), []hostfs.Mount{
		{ID: 1, Parent: 0, Location: hostfs.Location{Dev: "8:1", Path: "/"}, Target: "/"},
		{ID: 2, Parent: 1, Location: hostfs.Location{Dev: "8:2", Path: "/sub"}, Target: "/mnt"},
		{ID: 3, Parent: 2, Location: hostfs.Location{Dev: "8:3", Path: "/"}, Target: "/mnt"},
		{ID: 4, Parent: 3, Location: hostfs.Location{Dev: "8:1", Path: "/home/u"}, Target: "/mnt/u"},
		{ID: 5, Parent: 2, Location: hostfs.Location{Dev: "8:4", Path: "/"}, Target: "/mnt/hidden"},
		{ID: 6, Parent: 1, Location: hostfs.Location{Dev: "8:5", Path: "/"}, Target: "/gone"},
		{ID: 7, Parent: 1, Location: hostfs.Location{Dev: "8:1", Path: "/etc/f"}, Target: "/file"},
		{ID: 8, Parent: 77, Location: hostfs.Location{Dev: "8:6", Path: "/"}, Target: "/odd"},
	})
	for path, want := range map[string]hostfs.Location{
		"/": {Dev: "8:1", Path: "/"}, "/x/y": {Dev: "8:1", Path: "/x/y"}, "/mnt": {Dev: "8:3", Path: "/"}, "/mnt/hidden/x": {Dev: "8:3", Path: "/hidden/x"}, "/mnt/u/d": {Dev: "8:1", Path: "/home/u/d"},
		"/file": {Dev: "8:1", Path: "/etc/f"}, "/odd/x": {Dev: "8:6", Path: "/x"},
	} {
		if got := p.Of(path); got != want {
			t.Errorf("of(%q) = %v, want %v", path, got, want)
		}
	}
	roottest.Same(t, "others", p.Others("/home/u/d"), []string{"/mnt/u/d"})
	roottest.Same(t, "others of the second", p.Others("/mnt/u/d"), []string{"/home/u/d"})
	roottest.Same(t, "others of a directory above", p.Others("/home"), nil)
	roottest.Same(t, "parts of a directory above", p.Parts("/home"), []string{"/mnt/u"})
	roottest.Same(t, "parts of what has a mount below", p.Parts("/mnt"), []string{"/home/u"})
	roottest.Same(t, "others of a file", p.Others("/etc/f"), []string{"/file"})
}
