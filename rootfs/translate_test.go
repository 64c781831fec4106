package rootfs

import "testing"

func TestTranslation(t *testing.T) {
	v := &View{Mounts: []Mount{
		{Kind: MountBind, Source: "/usr", Target: "/usr", Dir: true},
		{Kind: MountBind, Source: "/h/work", Target: "/w", Dir: true, Writable: true},
		{Kind: MountTmpfs, Target: "/tmp", Dir: true},
		{Kind: MountBind, Source: "/h/work/ro", Target: "/w/ro", Dir: true},
		{Kind: MountBind, Source: "/h/work/sub", Target: "/s", Dir: true},
		{Kind: MountBind, Source: "/h/f", Target: "/etc/f"},
		{Kind: MountBind, Content: "x", Target: "/etc/hosts"},
		{Kind: MountMask, Target: "/w/secret", Dir: true},
	}}
	for _, c := range []struct {
		host, inside string
		writable     bool
	}{
		{"/usr/bin/ls", "/usr/bin/ls", false},
		{"/h/work", "/w", true},
		{"/h/work/new/file", "/w/new/file", true},
		{"/h/work/ro/x", "/w/ro/x", false},
		{"/h/work/sub/x", "/s/x", false},
		{"/h/f", "/etc/f", false},
	} {
		if got, writable, ok := v.InsideOf(c.host); !ok || got != c.inside || writable != c.writable {
			t.Errorf("%s is inside %q %v %v", c.host, got, writable, ok)
		}
		if got, writable, ok := v.HostOf(c.inside); !ok || got != c.host || writable != c.writable {
			t.Errorf("%s is outside %q %v %v", c.inside, got, writable, ok)
		}
	}
	if got, _, ok := v.HostOf("/w/sub/x"); !ok || got != "/h/work/sub/x" { // under both names
		t.Error(got)
	}
	for _, host := range []string{"/h", "/h/workshop", "/h/work/secret", "/h/work/secret/x", "/h/f/x", "/", "/w"} {
		if got, _, ok := v.InsideOf(host); ok {
			t.Errorf("%s is inside %q", host, got)
		}
	}
	for _, inside := range []string{"/", "/tmp/x", "/w/secret", "/w/secret/x", "/etc/hosts", "/etc/f/x", "/wx", "/w/../etc"} {
		if got, _, ok := v.HostOf(inside); ok {
			t.Errorf("%s is outside %q", inside, got)
		}
	}
}
