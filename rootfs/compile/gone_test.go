package compile

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

// goneView compiles a view as the launcher does: the second time it is known where overlays can be had.
func goneView(t *testing.T, tree *roottest.Tree, rules []string, refused map[string]string) *rootfs.View {
	t.Helper()
	r := request(tree, roottest.Rules(t, rules...))
	first, err := Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range first.Overlays {
		o.Why = refused[o.Target]
		r.Overlays = append(r.Overlays, o)
	}
	v, err := Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Overlays) > 0 {
		t.Errorf("asked again: %v", v.Overlays)
	}
	return v
}

func TestGone(t *testing.T) {
	for _, c := range []struct {
		name        string
		host, rules []string
		refused     map[string]string
		want        []string
		empty       string // why something is empty
	}{
		{
			name: "a file and its cache", host: []string{"f /a/s/m.py", "f /a/s/__pycache__/m.pyc", "f /a/s/n.py"},
			rules: []string{"read /a", "gone /a/s/m.py", "gone /a/s/__pycache__/m.pyc"}, want: []string{"ro /a/", "ro /a/s/ without __pycache__/m.pyc m.py"},
		},
		{name: "the top of a grant", host: []string{"f /a/m/x"}, rules: []string{"read /a", "gone /a/m"}, want: []string{"ro /a/ without m"}},
		{
			name: "under each name", host: []string{"f /a/m/x"}, rules: []string{"read /a", "bind /a /b", "gone /a/m"},
			want: []string{"ro /a/ without m", "ro /b/ from /a without m"},
		},
		{
			name: "a hard link", host: []string{"f /a/m.py", "h /b/other /a/m.py", "f /b/f"}, rules: []string{"read /a", "read /b", "gone /a/m.py"},
			want: []string{"ro /a/ without m.py", "ro /b/ without other"},
		},
		{name: "a symlink", host: []string{"l /a/m /x", "d /x"}, rules: []string{"read /a", "gone /a/m"}, want: []string{"ro /a/ without m"}},
		{name: "within another", host: []string{"f /a/m/n/x"}, rules: []string{"read /a", "gone /a/m", "gone /a/m/n"}, want: []string{"ro /a/ without m"}},
		{
			name: "what is denied or granted in it", host: []string{"f /a/m/n/x", "d /a/m/n/y", "f /a/m/k", "d /b"},
			rules: []string{"read /a", "write /a/m/n", "bind /b /a/m/n/y", "deny /a/m/k", "gone /a/m"}, want: []string{"ro /a/ without m"},
		},
		{
			name: "what is denied, granted or in memory beside it", host: []string{"f /a/m/x", "f /a/k", "d /a/w", "d /a/t"},
			rules: []string{"read /a", "write /a/w", "tmpfs /a/t", "deny /a/k", "gone /a/m"},
			want:  []string{"ro /a/ without m", "rw /a/w/", "tmpfs /a/t/", "mask /a/k"},
		},
		{name: "denied above", host: []string{"f /a/s/m/x"}, rules: []string{"read /a", "deny /a/s", "gone /a/s/m"}, want: []string{"ro /a/", "mask /a/s/"}},
		{name: "denied too", host: []string{"f /a/m/x"}, rules: []string{"read /a", "deny /a/m", "gone /a/m"}, want: []string{"ro /a/", "mask /a/m/"}},
		{name: "not there", host: []string{"d /a"}, rules: []string{"read /a", "gone /a/m"}, want: []string{"ro /a/"}},
		{name: "not shown", host: []string{"f /a/f", "f /b/m"}, rules: []string{"read /a", "gone /b/m"}, want: []string{"ro /a/"}},
		{
			name: "where programs write", host: []string{"f /a/m/x"}, rules: []string{"write /a", "gone /a/m"},
			want: []string{"rw /a/", "mask /a/m/"}, empty: "programs write",
		},
		{
			name: "where programs write under another name", host: []string{"f /a/s/m/x"}, rules: []string{"read /a/s", "bind /a /b rw", "gone /a/s/m"},
			want: []string{"rw /b/ from /a", "ro /a/s/", "rw /b/s/ from /a/s", "mask /a/s/m/", "mask /b/s/m/"}, empty: "programs write",
		},
		{
			name: "over a mount of the host", host: []string{"f /a/m/x", "m /a/s/mnt"}, rules: []string{"read /a", "gone /a/m"},
			want: []string{"ro /a/", "mask /a/m/"}, empty: "something mounted",
		},
		{
			name: "granted under a name in another grant", host: []string{"f /a/m/x", "d /b/o"}, rules: []string{"read /b", "bind /a/m /b/o", "gone /a/m"},
			want: []string{"ro /b/", "mask /b/o/"}, empty: "by itself",
		},
		{name: "granted alone", host: []string{"f /a/m.py"}, rules: []string{"read /a/m.py", "gone /a/m.py"}, want: []string{"mask /a/m.py"}, empty: "by itself"},
		{
			name: "on a machine without overlays", host: []string{"f /a/m/x"}, rules: []string{"read /a", "bind /a /b", "gone /a/m"}, refused: map[string]string{"/b": "no such device"},
			want: []string{"ro /a/ without m", "ro /b/ from /a", "mask /b/m/"}, empty: "no such device",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := roottest.Host(t, c.host...)
			v := goneView(t, tree, c.rules, c.refused)
			roottest.Same(t, "mounts", roottest.Mounts(v), c.want)
			if (c.empty != "") != (len(v.Emptied) > 0) || c.empty != "" && !strings.Contains(v.Emptied[0].Why, c.empty) {
				t.Errorf("empty: %+v", v.Emptied)
			}
			for _, m := range v.Mounts {
				if m.Kind == rootfs.MountMask && !m.Empty && m.From != "rule deny" {
					t.Errorf("%+v refuses", m)
				}
			}
			for _, g := range v.Gone {
				if p, err := v.Lookup(tree, g.Inside); !errors.Is(err, fs.ErrNotExist) || p.Host != "" {
					t.Errorf("%s is there: %+v, %v", g.Inside, p, err)
				}
				if names := v.Inside(g.Host); len(names) > 0 && c.refused == nil {
					t.Errorf("%s is inside as %q", g.Host, names)
				}
				if host, _, ok := v.Shown().HostOf(g.Inside); ok {
					t.Errorf("%s is said to show %s", g.Inside, host)
				}
			}
		})
	}
}

// The root of an overlay is open to everybody, so one is only mounted over what the program may list.
func TestGoneInAClosedDirectory(t *testing.T) {
	for _, c := range []struct {
		mode fs.FileMode
		uid  int
		gone bool
	}{{0o755, 0, true}, {0o700, 1000, true}, {0o750, 0, false}, {0o100, 1000, false}, {0o711, 0, false}} {
		tree := roottest.Host(t, "f /a/m.py")
		tree.Nodes["/a"].Mode, tree.Nodes["/a"].UID = fs.ModeDir|c.mode, c.uid
		if v := goneView(t, tree, []string{"read /a", "gone /a/m.py"}, nil); (len(v.Gone) == 1) != c.gone || (len(v.Emptied) == 0) != c.gone {
			t.Errorf("%v of %d: gone %v, empty %v", c.mode, c.uid, v.Gone, v.Emptied)
		}
	}
}

// A launcher that is root cannot search other users' directories in the sandbox. Those above a grant do not matter, because nothing is
// looked up through them.
func TestHiddenBelowAShutDirectory(t *testing.T) {
	for _, c := range []struct{ shut, want string }{
		{"/home/o", "ro /home/o/g/, mask /home/o/g/k, mask /home/o/g/s/m.py"},
		{"/home/o/g", "mask /home/o/g/"}, // in the place of the grant
		{"/home/o/g/s", "ro /home/o/g/, mask /home/o/g/k, mask /home/o/g/s/"},
	} {
		tree := roottest.Host(t, "f /home/o/g/k", "f /home/o/g/s/m.py")
		tree.Nodes[c.shut].Mode, tree.Nodes[c.shut].UID = fs.ModeDir|0o700, 4711
		r := request(tree, roottest.Rules(t, "read /home/o/g", "deny /home/o/g/k", "gone /home/o/g/s/m.py"))
		r.User.Privileged = true
		v, err := Compile(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(roottest.Mounts(v), ", "); got != c.want {
			t.Errorf("%s is shut: got %q, want %q", c.shut, got, c.want)
		}
	}
}
