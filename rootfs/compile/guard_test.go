package compile

import (
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

// A file that programs may not change is mounted read-only, and the directories above are mount points, wherever they may write.
func TestGuards(t *testing.T) {
	for name, c := range map[string]struct{ host, rules, guarded, want []string }{
		"in the workspace": {
			[]string{"f /ws/p.toml", "f /ws/x"},
			[]string{"write /ws"},
			[]string{"/ws/p.toml"},
			[]string{"rw /ws/", "ro /ws/p.toml"},
		},
		"deep in it, and under another name": {
			[]string{"f /ws/a/b/p.toml"},
			[]string{"write /ws", "bind /ws/a /w rw"},
			[]string{"/ws/a/b/p.toml"},
			[]string{"rw /ws/", "rw /w/ from /ws/a", "rw /w/b/ from /ws/a/b", "rw /ws/a/", "ro /w/b/p.toml from /ws/a/b/p.toml", "ro /ws/a/b/p.toml"},
		},
		"a hard link": {
			[]string{"f /p.toml", "h /ws/link /p.toml"},
			[]string{"write /ws"},
			[]string{"/p.toml"},
			[]string{"rw /ws/", "ro /ws/link"},
		},
		"read-only anyway": {
			[]string{"f /ro/p.toml"},
			[]string{"read /ro"},
			[]string{"/ro/p.toml"},
			[]string{"ro /ro/"},
		},
		"denied": {
			[]string{"f /ws/p.toml"},
			[]string{"write /ws", "deny /ws/p.toml"},
			[]string{"/ws/p.toml"},
			[]string{"rw /ws/", "mask /ws/p.toml"},
		},
		"not there": {[]string{"f /ws/x"}, []string{"write /ws"}, []string{"/ws/p.toml"}, []string{"rw /ws/"}},
	} {
		tree := roottest.Host(t, c.host...)
		r := request(tree, roottest.Rules(t, c.rules...))
		for _, g := range c.guarded {
			r.Guarded = append(r.Guarded, rootfs.Grant{Path: g, From: "the policy"})
		}
		v, err := Compile(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		roottest.Same(t, name, roottest.Mounts(v), c.want)
	}
}
