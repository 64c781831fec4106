package explain

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/compile"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

func request(tree hostfs.Tree, p rootfs.Policy) compile.Request {
	return compile.Request{
		Policy: p, Tree: tree, Hostname: "box",
		User: compile.Identity{UID: 1000, GID: 1000, Name: "u", Group: "g", Home: "/home/u"},
	}
}

// explainer compiles rules and answers about the result, as a user with the number of the fake files' owner.
func explainer(t testing.TB, tree *roottest.Tree, lines ...string) *Explainer {
	t.Helper()
	p := roottest.Rules(t, lines...)
	v, err := compile.Compile(request(tree, p))
	if err != nil {
		t.Fatalf("Compile(%q): %v", lines, err)
	}
	return &Explainer{View: v, Policy: p, Tree: tree}
}

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		host, rules       []string
		path, is, rule    string
		why, hint, unlike string
		real, hostPath    string
		also              []string
	}{
		{
			[]string{"f /d/a"},
			[]string{"read /d"},
			"/d/a", "inside, read-only", "files.read",
			"files.read at rule read shows /d, read-only", "", "host's", "/d/a", "/d/a", nil,
		},
		{[]string{"f /d/a"}, []string{"write /d"}, "/d", "inside, writable", "files.write", "shows it, writable", "", "", "/d", "/d", nil},
		{
			[]string{"f /d/a", "d /d/w"},
			[]string{"read /d", "write /d/w"},
			"/d/w", "inside, writable", "files.write",
			"wins over files.read at rule read, which shows /d", "", "", "/d/w", "/d/w", nil,
		},
		{
			[]string{"f /s/a"},
			[]string{"bind /s /w rw"},
			"/w/a", "inside, writable", "bind",
			"it is the host's /s/a", "", "", "/w/a", "/s/a", nil,
		},
		{
			[]string{"f /s/a"},
			[]string{"bind /s /w rw"},
			"/s/a", "not inside", "files.base",
			"the host's /s/a is inside as /w/a", `files.read = ["/s/a"]`, "", "/s/a", "",
			[]string{"/w/a"},
		},
		{
			[]string{"f /d/a", "l /d/l a", "l /l /d/l"},
			[]string{"read /l", "read /d"},
			"/l", "inside, read-only", "files.read",
			"/d/l is a link to a", "", "", "/d/a", "/d/a", nil,
		},
		{
			[]string{"f /d/a"},
			[]string{"read /d", "deny /d/a"},
			"/d/a", "not inside, denied", "files.deny",
			"files.deny at rule deny names /d/a", `remove "/d/a" from files.deny at rule deny`, "another", "/d/a", "", nil,
		},
		{
			[]string{"f /d/s/a"},
			[]string{"write /d", "deny /d/s"},
			"/d/s/a", "not inside, denied", "files.deny",
			"names /d/s", "files.deny", "", "/d/s/a", "", nil,
		},
		{
			[]string{"f /d/a", "h /d/b /d/a"},
			[]string{"read /d", "deny /d/a"},
			"/d/b", "not inside, denied", "files.deny",
			"/d/b is another hard link", "files.deny", "", "/d/b", "", nil,
		},
		{
			[]string{"f /d/a"},
			[]string{"read /d", "bind /d /e", "deny /d/a"},
			"/e/a", "not inside, denied", "files.deny",
			"/e/a is another name of it", "files.deny", "", "/e/a", "", nil,
		},
		{
			[]string{"f /d/x/y/a"},
			[]string{"write /d", "deny /d/x/y/a"},
			"/d/x", "inside, writable", "files.write",
			"files.write at rule write shows /d, writable", "", "deny", "/d/x", "/d/x", nil,
		},
		{
			[]string{"d /d"},
			[]string{"read /d", "deny /d/a"},
			"/d/a/b", "not inside", "files.deny",
			"it does not exist: should it appear", "", "", "/d/a/b", "", nil,
		},
		{
			[]string{"d /d"},
			[]string{"write /d"},
			"/d/a", "not inside", "files.write",
			"there is no /d/a there; the program can make it: /d is writable", "", "", "/d/a", "", nil,
		},
		{
			[]string{"f /t/a"},
			[]string{"tmpfs /t"},
			"/t/a", "not inside", "files.tmpfs",
			"empty when that is made; |the host's own /t/a is not shown", `files.read = ["/t/a"]`, "", "/t/a", "", nil,
		},
		{nil, []string{"tmpfs /t"}, "/t", "inside, writable", "files.tmpfs", "1G of memory at /t: files.tmpfs at rule tmpfs", "", "", "/t", "", nil},
		{nil, nil, "/tmp", "inside, writable", "default", "every sandbox has it", "", "", "/tmp", "", nil},
		{nil, nil, "/etc/passwd", "inside, read-only", "default", "sandboxrun writes it", "", "", "/etc/passwd", "", nil},
		{
			[]string{"f /d/a"}, []string{"read /d"}, "/d/a/b", "not inside", "", "/d/a is no directory", "", "", "/d/a/b", "", nil,
		},
		{
			[]string{"f /d/a"}, []string{"read /d"}, "/d/a/../a", "not inside", "", "/d/a is no directory", "", "", "/d/a", "", nil,
		},
		{
			[]string{"f /d/a"},
			[]string{"skip", "read /d", "read /e"},
			"/e/x", "not inside", "files.read",
			`files.read at rule read would show it, but the host has no /e (files.missing = "skip")`, "", "", "/e/x", "", nil,
		},
		{
			[]string{"f /d/a", "f /s/key"},
			[]string{"read /d", "secret /s"},
			"/s/key", "not inside", "files.secrets",
			"no grant may hold it", "", "", "/s/key", "", nil,
		},
		{
			[]string{"f /home/u/k", "d /usr"},
			[]string{"base host"},
			"/home/x", "not inside", "files.base",
			"shows no homes; |nor does the host have it", "", "", "/home/x", "", nil,
		},
		{
			[]string{"d /usr", "f /var/a", "m /var/m", "f /var/m/a"},
			[]string{"base host"},
			"/var/m/a", "not inside, hidden", "files.base",
			`files.base = "host" (the default) hides /var/m, above it`, `files.read = ["/var/m/a"]`, "", "/var/m/a", "", nil,
		},
		{
			[]string{"d /d", "l /d/a b", "l /d/b a"},
			[]string{"read /d"},
			"/d/a", "not inside, links in circles", "",
			"as many as the kernel follows", "", "", "/d/a", "", nil,
		},
		{
			[]string{"f /d/a\n\x1b[31m"},
			[]string{"read /d"},
			"/d/a\n\x1b[31m", "inside, read-only", "files.read", "shows /d", "", "\x1b", "/d/a\n\x1b[31m",
			"/d/a\n\x1b[31m", nil,
		},
		{nil, nil, "/dev/fd/3", "not inside", "default", "", "", "", "/proc/self/fd/3", "", nil},
		{nil, nil, "/dev/null/x", "not inside", "default", "no such directory", "", "", "/dev/null/x", "", nil},
		{nil, nil, "/dev/sda", "not inside", "default", "no device of the host", "", "", "/dev/sda", "", nil},
	} {
		t.Run(strings.Join(append(c.rules, c.path), ", "), func(t *testing.T) {
			x := explainer(t, roottest.Host(t, c.host...), c.rules...)
			e := x.Explain(c.path)
			why := strings.Join(e.Why, "; ")
			if e.Is != c.is || e.Rule != c.rule || e.Real != c.real || e.Host != c.hostPath || !slices.Equal(e.Also, c.also) {
				t.Errorf("got %+v", e)
			}
			for part := range strings.SplitSeq(c.why, "; |") {
				if !strings.Contains(why, part) {
					t.Errorf("%q is not in %q", part, why)
				}
			}
			if c.unlike != "" && strings.Contains(why, c.unlike) {
				t.Errorf("%q is in %q", c.unlike, why)
			}
			if !strings.Contains(e.Hint, c.hint) || c.hint == "" && e.Hint != "" {
				t.Errorf("hint %q, want %q", e.Hint, c.hint)
			}
		})
	}
}

// TestExplainNoProc: without /proc nothing is below it.
func TestExplainNoProc(t *testing.T) {
	x := explainer(t, roottest.Host(t, "f /d/a"), "read /d")
	x.NoProc = true
	for p, want := range map[string][3]string{
		"/proc": {"inside, read-only", keyProc, "/proc"}, "/proc/./": {"inside, read-only", keyProc, "/proc"},
		"/proc/self/status": {"not inside", keyProc, "/proc/self/status"}, "/proc/self/../../d": {"not inside", keyProc, "/proc/self/../../d"},
		"/proc/../d/a": {"inside, read-only", keyRead, "/d/a"}, "/dev/fd/0": {"not inside", keyProc, "/proc/self/fd/0"},
	} {
		e := x.Explain(p)
		if got := [3]string{e.Is, e.Rule, e.Real}; got != want || want[1] == keyProc && !strings.Contains(strings.Join(e.Why, ""), "processes.proc = false") {
			t.Errorf("%s: %q %q, want %q", p, got, e.Why, want)
		}
	}
	for _, n := range x.Nodes() {
		if n.Path == "/proc" && n.Rule != keyProc {
			t.Errorf("%+v", n)
		}
	}
}

// Modes are those of the program's user, and no capability helps.
func TestExplainModes(t *testing.T) {
	tree := roottest.Host(t, "f /d/a", "f /d/closed/b", "d /d/drop")
	for p, m := range map[string]struct {
		mode fs.FileMode
		uid  int
	}{"/d/a": {0o640, 7}, "/d/closed": {fs.ModeDir | 0o700, 7}, "/d/drop": {fs.ModeDir | 0o733, 7}} {
		tree.Nodes[p].Mode, tree.Nodes[p].UID = m.mode, m.uid
	}
	for _, c := range []struct {
		who           Who
		path, is, why string
	}{
		{Who{UID: 7, GID: 7}, "/d/a", "inside, writable", "shows /d"},
		{Who{UID: 8, GID: 8}, "/d/a", "inside, unreadable", "-rw-r----- of uid 7, gid 0: the program runs as uid 8, gid 8 and cannot read it"},
		{Who{UID: 8, GID: 0}, "/d/a", "inside, read-only", "cannot write it"},
		{Who{UID: 8, GID: 8, Groups: []int{3, 0}}, "/d/a", "inside, read-only", "cannot write it"},
		{Who{}, "/d/closed/b", "not inside, out of reach", "/d/closed is drwx------ of uid 7, gid 0: the program runs as uid 0, gid 0 and cannot search it"},
		{Who{UID: 7}, "/d/closed/b", "inside, unreadable", "of uid 0"},
		{Who{UID: 8, GID: 8}, "/d/drop", "inside, write-only", "cannot read it"},
	} {
		x := explainer(t, tree, "write /d")
		tree.Nodes["/d/closed/b"].Mode = 0o600
		x.Who = c.who
		e := x.Explain(c.path)
		if why := strings.Join(e.Why, "; "); e.Is != c.is || !strings.Contains(why, c.why) {
			t.Errorf("%+v: %q is %q: %s", c.who, c.path, e.Is, why)
		}
	}
}

// TestExplainIsLookup: on random hosts Explain finds what Lookup finds, wherever the kernel's rules are as lenient as its.
func TestExplainIsLookup(t *testing.T) {
	inside := 0
	for seed := range int64(300) {
		r := rand.New(rand.NewSource(seed))
		tree := roottest.RandomHost(t, r)
		p := roottest.RandomPolicy(r, tree)
		v, err := compile.Compile(request(tree, p))
		if err != nil {
			continue
		}
		for _, n := range tree.Nodes {
			if n.Mode&fs.ModeSymlink == 0 {
				n.Mode |= 0o555
			}
		}
		x := &Explainer{View: v, Policy: p, Tree: tree}
		for _, name := range roottest.AllNames(tree, v) {
			spot, err := v.Lookup(tree, name)
			e := x.Explain(name)
			shown := err == nil && spot.Kind != rootfs.PlaceMask
			if pathname.KernelPlace(e.Real) == "/proc" || pathname.KernelPlace(e.Real) == "/dev" {
				continue
			}
			if shown != e.Inside() && !errors.Is(e.stop.err, errNotDir) && !throughNothing(e) {
				t.Fatalf("seed %d: %q: %+v, %v, but %+v", seed, name, spot, err, e)
			}
			if e.Inside() {
				inside++
				if e.Real != spot.Path || e.Host != spot.Host || e.Kind != spot.Kind {
					t.Fatalf("seed %d: %q: %+v, but %+v", seed, name, spot, e)
				}
			}
			if len(e.Why) == 0 || e.Is == "" {
				t.Fatalf("seed %d: no reason for %+v", seed, e)
			}
		}
		checkNodes(t, x, v)
	}
	if inside < 1000 {
		t.Errorf("only %d paths are inside", inside)
	}
}

// throughNothing reports whether a path goes on with ".." from where nothing is: Lookup forgives that.
func throughNothing(e *Explanation) bool { return strings.Contains("/"+e.stop.part+"/", "/../") }

// checkNodes looks at the tree: all mounts are in it, each below the one that is above it.
func checkNodes(t *testing.T, x *Explainer, v *rootfs.View) {
	t.Helper()
	paths := map[string]bool{}
	var above []string
	for _, n := range x.Nodes() {
		if paths[n.Path] {
			t.Fatalf("%q is there twice", n.Path)
		}
		paths[n.Path] = true
		above = append(above[:n.Depth], n.Path)
		if n.Depth > 0 && pathname.Join(above[n.Depth-1], n.Name) != n.Path {
			t.Fatalf("%q below %q is not %q", n.Name, above[n.Depth-1], n.Path)
		}
	}
	for _, m := range v.Mounts {
		if !paths[m.Target] && !m.Pin {
			t.Fatalf("%q is not in the tree", m.Target)
		}
	}
}

func TestNodes(t *testing.T) {
	x := explainer(t, roottest.Host(t, "f /d/a", "f /d/s/b", "d /d/w", "l /l d"), "read /d", "deny /d/s", "deny /d/no", "write /d/w", "read /l", "bind /d/w /x")
	var lines []string
	for _, n := range x.Nodes() {
		if pathname.Within(n.Path, "/d") || pathname.Within(n.Path, "/x") || n.Path == "/l" {
			lines = append(lines, fmt.Sprint(n.Depth, " ", n.Name, " ", n.Kind, " ", n.Writable, " ", n.Denied, " ", n.Absent, " ", n.Rule, " ", n.Host, n.Link))
		}
	}
	roottest.Same(t, "nodes", lines, []string{
		"1 d host false false false files.read ", "2 no mask false true true files.deny ", "2 s mask false true false files.deny ",
		"2 w host true false false files.write ", "1 l root false false false  d", "1 x host false false false bind /d/w",
	})
}

func TestTOMLString(t *testing.T) {
	for in, want := range map[string]string{
		"/a b": `"/a b"`, `/q"\`: `"/q\"\\"`, "/n\n": `"/n\U0000000A"`, "/é": `"/é"`, "/\u202e": `"/\U0000202E"`,
	} {
		if got := tomlString(in); got != want {
			t.Errorf("%q is written %s, want %s", in, got, want)
		}
	}
}
