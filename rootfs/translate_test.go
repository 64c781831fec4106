package rootfs

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func translationView() *View {
	return &View{
		Entries: []Entry{{Path: "/bin", Kind: EntrySymlink, Content: "usr/bin"}, {Path: "/loop", Kind: EntrySymlink, Content: "/loop"}},
		Mounts: []Mount{
			{Kind: MountBind, Source: "/usr", Target: "/usr", Dir: true},
			{Kind: MountBind, Source: "/h/work", Target: "/w", Dir: true, Writable: true},
			{Kind: MountTmpfs, Target: "/tmp", Dir: true},
			{Kind: MountBind, Source: "/h/work/ro", Target: "/w/ro", Dir: true},
			{Kind: MountBind, Source: "/h/work/same", Target: "/w/same", Dir: true, Writable: true, Pin: true},
			{Kind: MountBind, Source: "/h/work/sub", Target: "/s", Dir: true},
			{Kind: MountBind, Source: "/h/f", Target: "/etc/f"},
			{Kind: MountBind, Content: "x", Target: "/etc/hosts"},
			{Kind: MountBind, Source: "/h/my files", Target: "/m", Dir: true},
			{Kind: MountMask, Target: "/w/secret", Dir: true},
		},
		Absent: []Denied{{Inside: "/w/absent", Host: "/h/work/absent"}},
	}
}

func TestTranslation(t *testing.T) {
	n := translationView().Shown()
	if slices.ContainsFunc(n, func(s Shown) bool { return s.Inside == "/w/same" }) {
		t.Error("an entry says what its parent says")
	}
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
		if got, writable, ok := n.InsideOf(c.host); !ok || got != c.inside || writable != c.writable {
			t.Errorf("%s is inside %q %v %v", c.host, got, writable, ok)
		}
		if got, writable, ok := n.HostOf(c.inside); !ok || got != c.host || writable != c.writable {
			t.Errorf("%s is outside %q %v %v", c.inside, got, writable, ok)
		}
	}
	for inside, want := range map[string]string{"/w/sub/x": "/h/work/sub/x", "/bin/sh": "/usr/bin/sh"} { // under both names
		if got, _, ok := n.HostOf(inside); !ok || got != want {
			t.Errorf("%s: %q", inside, got)
		}
	}
	for _, host := range []string{"/h", "/h/workshop", "/h/work/secret", "/h/work/secret/x", "/h/work/absent/x", "/h/f/x", "/", "/w"} {
		if got, _, ok := n.InsideOf(host); ok {
			t.Errorf("%s is inside %q", host, got)
		}
	}
	for _, inside := range []string{"/", "/tmp/x", "/w/secret", "/w/secret/x", "/w/absent", "/etc/hosts", "/etc/f/x", "/wx", "/w/../etc", "/loop/x"} {
		if got, _, ok := n.HostOf(inside); ok {
			t.Errorf("%s is outside %q", inside, got)
		}
	}
}

func TestTranslateText(t *testing.T) {
	n := translationView().Shown()
	resolve := func(name string) string { return strings.Replace(name, "/home/u/link", "/h/work", 1) }
	for text, want := range map[string]string{
		"":                                "",
		"/h/work":                         "/w",
		"/h/work/":                        "/w/",
		"/h/work/.":                       "/w/.",
		"/h/workshop/x":                   "/h/workshop/x",
		"/h/work/a b":                     "/w/a b",
		"a/h/work":                        "a/h/work",
		"./h/work":                        "./h/work",
		"--file=/h/work/x":                "--file=/w/x",
		"-I/h/work/include":               "-I/w/include",
		"--I/h/work":                      "--I/h/work",
		"/h/work:/h/work/sub:/h/workshop": "/w:/s:/h/workshop",
		"cat '/h/work/x'>/h/work/sub/y":   "cat '/w/x'>/s/y",
		"/h/work/secret/x":                "/h/work/secret/x",
		"/h/my files/x y":                 "/m/x y",
		"cp /h/my files /h/f":             "cp /m /etc/f",
		"file:///h/work/x":                "file:///w/x",
		"https://example.com/h/work/x":    "https://example.com/h/work/x",
		"see https://h/work and /h/work":  "see https://h/work and /w",
		"/home/u/link/x":                  "/w/x",
		"/":                               "/",
		"//":                              "//",
		"/h/work\xff\n/h/work":            "/h/work\xff\n/w",
		"/h/work/a=/h/work/b":             "/w/a=/h/work/b",
	} {
		if got := n.Translate(text, resolve); got != want {
			t.Errorf("%q is %q, not %q", text, got, want)
		}
	}
}

// mounted is what an oracle has at a path.
type mounted struct {
	host, source string
	writable     bool
}

// oracle makes the whole view as mounts do: each covers what was there, at every path of all.
func oracle(all []string, mounts []Mount) map[string]mounted {
	tree := map[string]mounted{}
	for _, m := range mounts {
		for _, inside := range all {
			parts, at := strings.Split(inside, "/"), strings.Split(m.Target, "/")
			if len(parts) < len(at) || !slices.Equal(parts[:len(at)], at) {
				continue
			}
			if delete(tree, inside); m.Kind == MountBind {
				host := strings.Join(append([]string{strings.TrimSuffix(m.Source, "/")}, parts[len(at):]...), "/")
				tree[inside] = mounted{"/" + strings.TrimPrefix(host, "/"), m.Source, m.Writable}
			}
		}
	}
	return tree
}

func TestTranslationProperty(t *testing.T) {
	all := []string{"/"} // every path of up to 4 components
	for i := 0; strings.Count(all[i], "/") < 4; i++ {
		for _, name := range []string{"a", "ab", "b"} {
			all = append(all, strings.TrimSuffix(all[i], "/")+"/"+name)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		v := &View{}
		for range random.IntN(6) {
			m := Mount{Kind: MountBind, Source: all[random.IntN(len(all))], Target: all[1+random.IntN(len(all)-1)], Dir: true, Writable: random.IntN(2) == 0}
			if random.IntN(4) == 0 {
				m.Kind, m.Source, m.Writable = MountMask, "", false
			}
			if !slices.ContainsFunc(v.Mounts, func(o Mount) bool { return o.Target == m.Target }) {
				v.Mounts = append(v.Mounts, m)
			}
		}
		slices.SortStableFunc(v.Mounts, func(a, b Mount) int { return strings.Count(a.Target, "/") - strings.Count(b.Target, "/") })
		tree, n := oracle(all, v.Mounts), v.Shown()
		for _, inside := range all {
			host, writable, ok := n.HostOf(inside)
			if want, shown := tree[inside]; ok != shown || host != want.host || writable != want.writable {
				t.Fatalf("%+v\n%s: %q %v %v, want %+v", v.Mounts, inside, host, writable, ok, want)
			}
		}
		for _, host := range all {
			inside, writable, ok := n.InsideOf(host)
			if strings.Count(inside, "/") > 4 {
				continue // the oracle does not know it
			}
			at := tree[inside]
			if ok && (at.host != host || at.writable != writable) {
				t.Fatalf("%+v\n%s is %s inside, where %+v is", v.Mounts, host, inside, at)
			}
			for other, m := range tree {
				if m.host == host && (!ok || len(m.source) > len(at.source)) {
					t.Fatalf("%+v\n%s is %s inside (%v), not %q", v.Mounts, host, other, ok, inside)
				}
			}
		}
	}
}
