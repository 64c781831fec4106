package spec

import (
	"io/fs"
	"slices"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

// closedTree is a host on which some directories can be searched by root alone.
type closedTree struct {
	roottest.Files
	closed []string
}

func (t closedTree) Lstat(p string) (hostfs.Info, error) {
	info, err := t.Files.Lstat(p)
	if slices.Contains(t.closed, p) {
		info.Mode = fs.ModeDir | 0o750
	}
	return info, err
}

func TestMakeWay(t *testing.T) {
	const policy = "version = 1\nfiles = { base = \"host\", read = [\"/pool/a/b/in\"], write = [\"/pool/a/b/out\", \"/pool/open\"] }\n"
	tree := closedTree{roottest.Files{
		"/pool": "/", "/pool/a": "/", "/pool/a/b": "/", "/pool/a/b/in": "/", "/pool/a/b/out": "/", "/pool/open": "/", "/etc": "/", "/usr": "/",
	}, []string{"/pool/a", "/pool/a/b"}}
	for _, c := range []struct {
		host func(*Host)
		want int
	}{{asMachineRoot, 1}, {asRoot, 0}, {nil, 0}} {
		plan, err := resolve(t, policy, func(h *Host) {
			if c.host != nil {
				c.host(h)
			}
			h.Tree = tree
		})
		if err != nil {
			t.Fatal(err)
		}
		var made []rootfs.Mount
		for i, m := range plan.View.Mounts {
			if m.Kind == rootfs.MountTmpfs && m.Mode == 0o755 && !m.Owned {
				made = append(made, m)
			}
			if slices.ContainsFunc(plan.View.Mounts[:i], func(n rootfs.Mount) bool { return pathname.Within(n.Target, m.Target) }) {
				t.Errorf("%s comes after what is below it", m.Target)
			}
		}
		if len(made) != c.want || c.want == 1 && made[0].Target != "/pool/a" {
			t.Errorf("%+v", made)
		}
	}
}
