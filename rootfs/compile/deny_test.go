package compile

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

func TestDenies(t *testing.T) {
	for _, c := range []viewCase{
		{name: "in a bind of another name", host: []string{"f /a/secret/k"}, rules: []string{"bind /a /w", "read /a", "deny /a/secret"}, want: []string{"ro /a/", "ro /w/ from /a", "mask /a/secret/", "mask /w/secret/"}},
		{name: "by the name inside", host: []string{"f /a/secret"}, rules: []string{"bind /a /w", "read /a", "deny /w/secret"}, want: []string{"ro /a/", "ro /w/ from /a", "mask /a/secret", "mask /w/secret"}},
		{name: "grant inside a denied directory", host: []string{"f /d/a/f"}, rules: []string{"read /d/a", "bind /d/a/f /w/f", "deny /d"}, want: []string{"mask /d/a/", "mask /w/f"}},
		{name: "bind at a target inside a denied place", host: []string{"f /d/a/f", "f /o/x"}, rules: []string{"read /d", "bind /o /d/a", "deny /d/a"}, want: []string{"ro /d/", "mask /d/a/"}},
		{name: "bind below a denied bind", host: []string{"f /d/s/f", "f /o/x"}, rules: []string{"bind /d /w", "bind /o /w/s", "deny /d"}, want: []string{"mask /w/"}},
		{name: "target name denied, source elsewhere", host: []string{"f /o/x"}, rules: []string{"bind /o /d/a/b", "deny /d"}, want: []string{"mask /d/a/b/"}},
		{name: "covered by a tmpfs", host: []string{"f /a/t/k"}, rules: []string{"read /a", "tmpfs /a/t", "deny /a/t/k"}, want: []string{"ro /a/", "tmpfs /a/t/"}},
		{name: "covered by another bind", host: []string{"f /a/t/k", "f /b/k"}, rules: []string{"read /a", "bind /b /a/t", "deny /a/t/k"}, want: []string{"ro /a/", "ro /a/t/ from /b", "mask /a/t/k"}},
		{name: "one below another", host: []string{"f /a/s/k"}, rules: []string{"read /a", "deny /a/s", "deny /a/s/k"}, want: []string{"ro /a/", "mask /a/s/"}},
		{name: "hard links", host: []string{"f /a/k", "h /b/other /a/k", "h /c/third /a/k", "f /b/f"}, rules: []string{"write /b", "bind /c /w", "deny /a/k"}, want: []string{"rw /b/", "ro /w/ from /c", "mask /b/other", "mask /w/third"}},
		{name: "in the middle of links", host: []string{"f /r/k/x", "l /a/l1 /a/l2", "l /a/l2 /r/k"}, rules: []string{"read /a", "read /r", "deny /a/l1/x"}, want: []string{"ro /a/", "ro /r/", "mask /r/k/x"}},
		{name: "the host's /tmp and home", host: []string{"f /tmp/x", "f /home/u/x", "f /a/f"}, rules: []string{"read /a", "deny /tmp", "deny /home"}, want: []string{"ro /a/"}},
		{name: "nothing there, nothing shown", host: []string{"d /a"}, rules: []string{"read /a", "deny /no/deep/.aws"}, want: []string{"ro /a/"}},
		{name: "dangling", host: []string{"l /a/.env /no/.env"}, rules: []string{"write /a", "deny /a/.env"}, want: []string{"rw /a/", "mask /a/.env"}},
		{name: "loop", host: []string{"l /a/x x"}, rules: []string{"write /a", "deny /a/x"}, want: []string{"rw /a/", "mask /a/x"}},
		{name: "grant by a link to what is denied", host: []string{"f /tmp/d/k", "l /tmp/l d"}, rules: []string{"read /tmp/l", "deny /tmp/d/k"}, want: []string{"ro /tmp/d/", "ro /tmp/l/ from /tmp/d", "mask /tmp/d/k", "mask /tmp/l/k"}},
		{name: "what is above in a writable grant is pinned", host: []string{"f /ws/a/b/k", "f /ws/a/c/k", "f /r/a/k"}, rules: []string{"write /ws", "read /r", "deny /ws/a/b/k", "deny /ws/a/c/k", "deny /r/a/k"}, want: []string{"ro /r/", "rw /ws/", "rw /ws/a/", "rw /ws/a/b/", "rw /ws/a/c/", "mask /r/a/k", "mask /ws/a/b/k", "mask /ws/a/c/k"}},
		{name: "a grant between", host: []string{"f /ws/a/b/k"}, rules: []string{"write /ws", "read /ws/a", "deny /ws/a/b/k"}, want: []string{"rw /ws/", "ro /ws/a/", "mask /ws/a/b/k"}},
		{name: "a link to a device", host: []string{"d /ws", "l /ws/.env /dev/null"}, rules: []string{"write /ws", "deny /ws/.env"}, want: []string{"rw /ws/", "mask /ws/.env"}},
		{name: "a socket", host: []string{"s /a/x.sock"}, rules: []string{"write /a", "deny /a/x.sock"}, want: []string{"rw /a/", "mask /a/x.sock"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.run(t)
			tree := roottest.Host(t, c.host...)
			p := roottest.Rules(t, c.rules...)
			v := compileOK(t, tree, c.rules...)
			var denied []string
			for _, g := range p.Deny {
				denied = append(denied, g.Path)
			}
			checkNames(t, tree, v, p.Deny)
			checkDenied(t, tree, v, denied, roottest.AllNames(tree, v))
			checkPins(t, tree, v)
		})
	}
}

func TestAbsent(t *testing.T) { // fs03
	for _, c := range []struct {
		host, rules []string
		want        []string
	}{
		{
			[]string{"f /ws/a", "f /ws/afile", "d /ws/.git"},
			[]string{"write /ws", "deny /ws/.env", "deny /ws/.git/config.worktree", "deny /no/.aws", "deny /ws/afile/hooks"},
			[]string{"/ws/.env /ws/.env rw /ws", "/ws/.git/config.worktree /ws/.git/config.worktree rw /ws", "/ws/afile/hooks /ws/afile/hooks rw /ws"},
		},
		{[]string{"d /ws"}, []string{"bind /ws /w rw", "deny /w/.env"}, []string{"/w/.env /ws/.env rw /ws"}},
		{[]string{"d /ws"}, []string{"bind /ws /w rw", "deny /ws/.env"}, []string{"/w/.env /ws/.env rw /ws"}},
		{[]string{"d /ws"}, []string{"read /ws", "deny /ws/.env"}, []string{"/ws/.env /ws/.env ro /ws"}},
		{[]string{"d /ws/s"}, []string{"write /ws", "read /ws/s", "deny /ws/s/.env"}, []string{"/ws/s/.env /ws/s/.env ro /ws/s"}},
		{[]string{"d /ws/s"}, []string{"write /ws", "tmpfs /ws/s", "deny /ws/s/.env"}, nil},
		{[]string{"d /ws/s"}, []string{"write /ws", "deny /ws/s", "deny /ws/s/.env"}, nil},
		{[]string{"l /ws/l /ws/gone"}, []string{"write /ws", "deny /ws/l"}, []string{"/ws/gone /ws/gone rw /ws"}},
		{[]string{"l /ws/l /elsewhere"}, []string{"write /ws", "deny /ws/l"}, nil},
	} {
		v := compileOK(t, roottest.Host(t, c.host...), c.rules...)
		var got []string
		for _, a := range v.Absent {
			mode := "ro"
			if a.Writable {
				mode = "rw"
			}
			got = append(got, fmt.Sprintf("%s %s %s %s", a.Inside, a.Host, mode, a.Grant))
		}
		roottest.Same(t, strings.Join(c.rules, ", "), got, c.want)
	}
	tree := roottest.Host(t, "f /ws/locked/k")
	tree.Nodes["/ws/locked/k"].Err = fs.ErrPermission
	if v := compileOK(t, tree, "write /ws", "deny /ws/locked/k"); len(v.Absent) != 1 {
		t.Errorf("what cannot be looked at: %+v", v.Absent)
	}
}

func TestSecrets(t *testing.T) {
	hostLines := []string{"f /a/answers/x", "d /b", "f /usr/share/key", "l /l /a/answers", "f /h/k", "h /c/linked /h/k"}
	for _, c := range []struct {
		rules []string
		want  []string // in the message; none: no error
	}{
		{[]string{"read /b", "secret /a/answers"}, nil},
		{[]string{"read /a", "secret /a/answers"}, []string{`rule read "/a" holds the secret "/a/answers" (rule secret)`}},
		{[]string{"read /a/answers", "secret /a/answers"}, []string{"holds", "/a/answers"}},
		{[]string{"write /a/answers/x", "secret /a/answers"}, []string{`rule write "/a/answers/x" lies inside the secret "/a/answers"`}},
		{[]string{"read /l", "secret /a"}, []string{`rule read "/l" lies inside`}},
		{[]string{"read /a", "secret /l"}, []string{`holds the secret "/l"`}},
		{[]string{"bind /a /w", "secret /a/answers"}, []string{"rule bind"}},
		{[]string{"workspace /a /w", "secret /a/answers/x"}, []string{"rule workspace"}},
		{[]string{"read /a", "secret /a/not-yet"}, []string{"not-yet"}},
		{[]string{"read /a", "secret /a/not-yet", "deny /a/not-yet"}, nil},
		{[]string{"read /a", "secret /a/answers", "deny /a/answers"}, nil},
		{[]string{"read /a", "secret /a/answers/x", "deny /a/answers"}, nil},
		{[]string{"read /a", "secret /a/answers", "deny /a/answers/x"}, []string{"holds"}},
		{[]string{"read /a/answers", "secret /a/answers", "deny /l"}, nil},
		{[]string{"read /c", "secret /h/k"}, []string{`holds, as "/c/linked", the secret "/h/k"`}},
		{[]string{"read /c", "secret /h/k", "deny /c/linked"}, nil},
		{[]string{"read /c", "secret /h/k", "deny /h/k"}, nil},
		{[]string{"read /c", "secret /h/k", "deny /h"}, []string{`holds, as "/c/linked", the secret "/h/k"`}},
		{[]string{"base host", "secret /usr/share/key"}, []string{`files.base "host"`, "/usr/share/key"}},
		{[]string{"base host", "secret /usr/share/key", "deny /usr/share"}, nil},
		{[]string{"base system", "secret /usr"}, []string{`files.base "system"`}},
		{[]string{"base system", "secret /a"}, nil},
		{[]string{"base rootfs /a", "secret /a/answers/x"}, []string{`files.base "rootfs"`}},
		{[]string{"base rootfs /a", "secret /a"}, []string{`files.base "rootfs"`}},
	} {
		_, err := Compile(request(roottest.Host(t, hostLines...), roottest.Rules(t, c.rules...)))
		var e *fault.Error
		switch {
		case c.want == nil && err != nil:
			t.Errorf("%q: %v", c.rules, err)
		case c.want != nil && (!errors.As(err, &e) || e.Code != "grant_holds_secret" || e.Hint == ""):
			t.Errorf("%q: got %v, want a secret error", c.rules, err)
		}
		for _, text := range c.want {
			if e != nil && !strings.Contains(e.Error(), text) {
				t.Errorf("%q: message %q lacks %q", c.rules, e.Error(), text)
			}
		}
	}
}

func TestLookup(t *testing.T) {
	tree := roottest.Host(t, "f /a/d/f", "l /a/up ../../..", "l /a/loop loop", "l /a/out /b/x", "f /b/x", "d /c")
	v := compileOK(t, tree, "read /a", "write /b", "bind /c /w/c rw", "deny /a/d", "workspace tmpfs /m")
	for _, c := range []struct {
		path string
		want rootfs.Place
		err  error
	}{
		{"/", rootfs.Place{Kind: rootfs.PlaceRoot, Path: "/", Dir: true}, nil},
		{"/a", rootfs.Place{Kind: rootfs.PlaceHost, Path: "/a", Host: "/a", Dir: true}, nil},
		{"/a/up/b/x", rootfs.Place{Kind: rootfs.PlaceHost, Path: "/b/x", Host: "/b/x", Writable: true}, nil},
		{"/a/out", rootfs.Place{Kind: rootfs.PlaceHost, Path: "/b/x", Host: "/b/x", Writable: true}, nil},
		{"/w/c", rootfs.Place{Kind: rootfs.PlaceHost, Path: "/w/c", Host: "/c", Dir: true, Writable: true}, nil},
		{"/w/c/new", rootfs.Place{Kind: rootfs.PlaceHost, Path: "/w/c/new", Host: "/c/new", Writable: true}, fs.ErrNotExist},
		{"/w", rootfs.Place{Kind: rootfs.PlaceRoot, Path: "/w", Dir: true}, nil},
		{"/w/x", rootfs.Place{Kind: rootfs.PlaceRoot, Path: "/w/x"}, fs.ErrNotExist},
		{"/a/d", rootfs.Place{Kind: rootfs.PlaceMask, Path: "/a/d", Dir: true}, nil},
		{"/a/d/f", rootfs.Place{Kind: rootfs.PlaceMask, Path: "/a/d/f"}, fs.ErrNotExist},
		{"/m", rootfs.Place{Kind: rootfs.PlaceTmpfs, Path: "/m", Dir: true, Writable: true}, nil},
		{"/m/x", rootfs.Place{Kind: rootfs.PlaceTmpfs, Path: "/m/x", Writable: true}, fs.ErrNotExist},
		{"/a/loop", rootfs.Place{Path: "/a/loop"}, pathname.ErrLoop},
		{"/etc/passwd", rootfs.Place{Kind: rootfs.PlaceRoot, Path: "/etc/passwd"}, nil},
	} {
		got, err := v.Lookup(tree, c.path)
		got.Mount = nil
		if got != c.want || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("Lookup(%q) = %+v, %v; want %+v, %v", c.path, got, err, c.want, c.err)
		}
	}
	roottest.Same(t, "Inside", v.Inside("/c/new"), []string{"/w/c/new"})
	roottest.Same(t, "Inside what is denied", v.Inside("/a/d/f"), nil)
	roottest.Same(t, "Inside what is not shown", v.Inside("/etc"), nil)
}
