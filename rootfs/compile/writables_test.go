package compile

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

// TestLinksOfPrograms: a link that stands where the policy lets programs write is followed by nothing.
func TestLinksOfPrograms(t *testing.T) {
	tree := roottest.Host(t, "d /ws/sub", "f /ws/f", "l /ws/l /home/u", "l /ws/lf /home/u/key", "f /home/u/key", "l /chain /ws/l", "l /up ws/sub/../l", "l /in /ws/sub",
		"d /other", "l /ws/sub/l /home/u", "l /ws/circle circle", "l /ws/usr /usr", "d /usr/bin", "b /second /ws", "b /sub /ws/sub")
	for _, c := range []struct {
		rules []string
		want  string // in the message; empty: no error
	}{
		{[]string{"write /ws", "read /ws/l"}, `rule read "/ws/l" goes through the symbolic link "/ws/l" (to "/home/u")`},
		{[]string{"write /ws", "write /ws/l"}, `"/ws/l"`},
		{[]string{"write /ws", "read /ws/l/deeper"}, `"/ws/l"`},
		{[]string{"write /ws", "read /chain"}, `goes through the symbolic link "/ws/l"`},
		{[]string{"write /ws", "read /up"}, `goes through the symbolic link "/ws/l"`},
		{[]string{"write /ws", "bind /ws/lf /etc/f"}, `"/ws/lf"`},
		{[]string{"workspace /ws /w", "bind /ws/l /m"}, `"/ws/l"`},
		{[]string{"bind /ws /w rw", "read /ws/l"}, `"/ws/l"`},
		{[]string{"write /ws", "workspace /ws/l /w"}, `"/ws/l"`},
		{[]string{"write /ws", "base rootfs /ws/l"}, `"/ws/l"`},
		{[]string{"write /ws", "bind /other /ws/l/x"}, `"/ws/l"`},
		{[]string{"write /ws", "tmpfs /ws/usr/bin"}, `"/ws/usr"`},
		{[]string{"skip", "write /ws", "read /ws/l/gone"}, `"/ws/l"`},
		{[]string{"write /ws", "read /ws/circle"}, `"/ws/circle"`},
		{[]string{"write /ws", "read /second/l"}, `goes through the symbolic link "/second/l"`},
		{[]string{"write /second", "read /ws/l"}, `"/ws/l"`},
		{[]string{"write /ws", "read /sub/l"}, `"/sub/l"`},
		{[]string{"write /sub", "read /ws/sub/l"}, `"/ws/sub/l"`},
		{[]string{"write /ws", "read /in"}, ""},
		{[]string{"write /ws/sub", "read /ws/l"}, ""},
		{[]string{"read /ws", "read /ws/l"}, ""},
		{[]string{"bind /ws /w", "read /ws/l"}, ""},
		{[]string{"write /ws/f", "read /ws/l"}, ""},
	} {
		_, err := Compile(request(tree, roottest.Rules(t, c.rules...)))
		var e *fault.Error
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%q: %v", c.rules, err)
		case c.want != "" && (!errors.As(err, &e) || e.Code != "policy_invalid" || !strings.Contains(e.Error(), c.want) || e.Hint == ""):
			t.Errorf("%q: got %v, want %s", c.rules, err, c.want)
		}
	}
	follow := compileOK(t, tree, "write /ws").Follower(tree)
	for path, want := range map[string]string{"/in/s": "/ws/sub/s", "/ws/s": "/ws/s", "/ws/l/s": "", "/chain/s": "", "/second/l": ""} {
		if got, err := follow("port", path); (err == nil) != (want != "") || want != "" && got != want {
			t.Errorf("Follower: %q is %q, %v", path, got, err)
		}
	}
	follow = compileOK(t, tree, "write /ws", "tmpfs /ws").Follower(tree)
	if got, err := follow("port", "/ws/l"); err == nil {
		t.Errorf("Follower: in a writable grant that a tmpfs covers, %q is followed", got)
	}
}

// TestDeniesOfLinksOfPrograms: what may be a program's link hides itself, is held in its place, and hides what it leads to unless
// that takes away more than a part of a grant.
func TestDeniesOfLinksOfPrograms(t *testing.T) {
	hostLines := []string{
		"f /ws/s/k", "l /ws/key s/k", "l /ws/dir s", "l /ws/top /", "l /ws/usr /usr", "l /ws/sh /usr/bin/sh", "f /usr/bin/sh", "l /ws/all .", "l /ws/up ..",
		"f /g/f", "f /g/sub/f", "l /ws/g /g", "l /ws/gf /g/sub", "l /ws/hop key", "l /ws/proc /proc/self", "d /ws/t", "l /ws/tl t", "d /ws/w/d", "l /ws/wl w",
	}
	for _, c := range []struct {
		rules, want []string
		said        bool
	}{
		{[]string{"deny /ws/key"}, []string{"rw /ws/s/", "mask /ws/key", "mask /ws/s/k"}, false},
		{[]string{"deny /ws/hop"}, []string{"rw /ws/s/", "mask /ws/hop", "mask /ws/key", "mask /ws/s/k"}, false},
		{[]string{"deny /ws/dir/k"}, []string{"rw /ws/dir", "rw /ws/s/", "mask /ws/s/k"}, false},
		{[]string{"deny /ws/dir"}, []string{"mask /ws/dir", "mask /ws/s/"}, false},
		{[]string{"deny /ws/top"}, []string{"mask /ws/top"}, true},
		{[]string{"deny /ws/usr"}, []string{"mask /ws/usr"}, true},
		{[]string{"deny /ws/sh"}, []string{"mask /ws/sh"}, true},
		{[]string{"deny /ws/all"}, []string{"mask /ws/all"}, true},
		{[]string{"deny /ws/up"}, []string{"mask /ws/up"}, true},
		{[]string{"deny /ws/proc"}, []string{"mask /ws/proc"}, false},
		{[]string{"deny /ws/g"}, []string{"mask /ws/g"}, true},
		{[]string{"deny /ws/gf"}, []string{"mask /g/sub/", "mask /ws/gf"}, false},
		{[]string{"deny /ws/tl", "tmpfs /ws/t"}, []string{"tmpfs /ws/t/", "mask /ws/tl"}, false},
		{[]string{"deny /ws/wl", "workdir /ws/w/d"}, []string{"mask /ws/wl"}, true},
	} {
		tree := roottest.Host(t, hostLines...)
		v := compileOK(t, tree, append(c.rules, "base system", "write /ws", "read /g")...)
		checkView(t, tree, v)
		checkPins(t, tree, v)
		got := roottest.Mounts(v)
		for _, own := range []string{"ro /usr/", "rw /ws/", "ro /g/"} {
			for i, m := range got {
				if m == own {
					got = append(got[:i], got[i+1:]...)
					break
				}
			}
		}
		roottest.Same(t, strings.Join(c.rules, ", "), got, c.want)
		if said := len(v.Skipped) > 0; said != c.said {
			t.Errorf("%q: said %q", c.rules, v.Skipped)
		}
	}
	// A secret that lies where programs write is refused or denied, wherever a link there leads.
	tree := roottest.Host(t, "l /ws/.env /usr/bin/sh", "f /usr/bin/sh", "h /usr/bin/dash /usr/bin/sh")
	compileOK(t, tree, "base system", "write /ws", "deny /ws/.env", "secret /ws/.env")
	if _, err := Compile(request(tree, roottest.Rules(t, "base system", "write /ws", "secret /ws/.env"))); err == nil {
		t.Error("a secret in a grant is not refused")
	}
}

func TestPins(t *testing.T) {
	for _, c := range []viewCase{
		{name: "above a tmpfs", host: []string{"d /ws/a/b/t"}, rules: []string{"write /ws", "tmpfs /ws/a/b/t"}, want: []string{"rw /ws/", "rw /ws/a/", "rw /ws/a/b/", "tmpfs /ws/a/b/t/"}},
		{name: "above a carve-out", host: []string{"f /ws/a/c/f"}, rules: []string{"write /ws", "read /ws/a/c"}, want: []string{"rw /ws/", "rw /ws/a/", "ro /ws/a/c/"}},
		{name: "through carve-outs", host: []string{"f /ws/a/c/d/e/k"}, rules: []string{"write /ws", "read /ws/a/c", "write /ws/a/c/d", "deny /ws/a/c/d/e/k"}, want: []string{
			"rw /ws/", "rw /ws/a/", "ro /ws/a/c/", "rw /ws/a/c/d/", "rw /ws/a/c/d/e/", "mask /ws/a/c/d/e/k",
		}},
		{name: "the source of a bind", host: []string{"f /ws/a/c/f"}, rules: []string{"bind /ws /w rw", "bind /ws/a/c /c"}, want: []string{"ro /c/ from /ws/a/c", "rw /w/ from /ws", "rw /w/a/ from /ws/a", "rw /w/a/c/ from /ws/a/c"}},
		{name: "under the name that can be written", host: []string{"f /ws/a/b/c/f"}, rules: []string{"bind /ws /w rw", "write /ws/a/b", "read /ws/a/b/c"}, want: []string{
			"rw /w/ from /ws", "rw /w/a/ from /ws/a", "rw /w/a/b/ from /ws/a/b", "rw /ws/a/b/", "ro /ws/a/b/c/", "rw /w/a/b/c/ from /ws/a/b/c",
		}},
		{name: "by a second mount of the host", host: []string{"f /ws/a/c/f", "b /m /ws"}, rules: []string{"write /m", "read /ws/a/c"}, want: []string{"rw /m/", "rw /m/a/", "ro /ws/a/c/", "rw /m/a/c/"}},
		{name: "nothing in a read grant", host: []string{"f /r/a/c/f"}, rules: []string{"read /r", "tmpfs /r/a/c"}, want: []string{"ro /r/", "tmpfs /r/a/c/"}},
		{name: "nothing for what the grant shows anyway", host: []string{"f /ws/a/c/f"}, rules: []string{"write /ws", "write /ws/a/c"}, want: []string{"rw /ws/"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.run(t)
			tree := roottest.Host(t, c.host...)
			checkPins(t, tree, compileOK(t, tree, c.rules...))
		})
	}
	tree := roottest.Host(t, "f /etc/ssl/private/k", "f /etc/shadow")
	r := request(tree, roottest.Rules(t, "base host", "write /etc"))
	r.User.Privileged = true
	v, err := Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	checkPins(t, tree, v)
	if at := v.Inside("/etc/ssl"); len(at) != 1 || !v.Index(tree).Mounts["/etc/ssl"].Pin {
		t.Errorf("above a mask of the base nothing is pinned: %q", roottest.Mounts(v))
	}
}

func TestSecondMountsOfTheHost(t *testing.T) {
	hostLines := []string{"f /d/s/k", "f /d/s/sub/k", "f /d/o", "b /whole /d", "b /part /d/s", "b /deep /d/s/sub", "b /usr/share/s /d/s"}
	for _, c := range []struct{ rules, want []string }{
		{[]string{"read /whole", "deny /d/s"}, []string{"ro /whole/", "mask /whole/s/"}},
		{[]string{"read /part", "deny /d/s"}, []string{"mask /part/"}},
		{[]string{"read /deep", "deny /d/s"}, []string{"mask /deep/"}},
		{[]string{"read /part", "deny /d/s/k"}, []string{"ro /part/", "mask /part/k"}},
		{[]string{"read /d", "deny /deep"}, []string{"ro /d/", "mask /d/s/sub/"}},
		{[]string{"read /d", "deny /part"}, []string{"ro /d/", "mask /d/s/"}},
		{[]string{"base system", "deny /d/s"}, []string{"ro /usr/", "mask /usr/share/s/"}},
		{[]string{"read /deep", "deny /d/s/k"}, []string{"ro /deep/"}},
	} {
		tree := roottest.Host(t, hostLines...)
		v := compileOK(t, tree, c.rules...)
		checkView(t, tree, v)
		roottest.Same(t, strings.Join(c.rules, ", "), roottest.Mounts(v), c.want)
	}
	for _, c := range [][]string{
		{"read /whole", "secret /d/s"},
		{"read /part", "secret /d/s"},
		{"read /deep", "secret /d/s"},
		{"read /part", "secret /d/s/k"},
		{"read /d", "secret /part"},
		{"read /d/s/k", "secret /part"},
		{"base system", "secret /d/s"},
		{"base system", "secret /d/s/sub/k"},
	} {
		var e *fault.Error
		if _, err := Compile(request(roottest.Host(t, hostLines...), roottest.Rules(t, c...))); !errors.As(err, &e) || e.Code != fault.GrantHoldsSecret {
			t.Errorf("%q: %v", c, err)
		}
	}
	compileOK(t, roottest.Host(t, hostLines...), "read /deep", "secret /d/s/k")
	compileOK(t, roottest.Host(t, hostLines...), "read /whole", "secret /d/s", "deny /part")
}

func TestHardLinksOfTheBase(t *testing.T) {
	hostLines := []string{"f /usr/bin/perl", "h /usr/bin/perl5 /usr/bin/perl", "f /key", "h /usr/share/key /key", "m /usr/net", "d /usr/net/x"}
	for _, base := range []string{"base system", "base host"} {
		v := compileOK(t, roottest.Host(t, hostLines...), base, "deny /usr/bin/perl", "deny /key")
		for _, p := range []string{"/usr/bin/perl", "/usr/bin/perl5", "/usr/share/key"} {
			if at := v.Inside(p); len(at) > 0 {
				t.Errorf("%s: %s is at %q", base, p, at)
			}
		}
		var e *fault.Error
		if _, err := Compile(request(roottest.Host(t, hostLines...), roottest.Rules(t, base, "secret /key"))); !errors.As(err, &e) || !strings.Contains(e.Error(), `shows, as "/usr/share/key",`) {
			t.Errorf("%s: %v", base, err)
		}
	}
}
