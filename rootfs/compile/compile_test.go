package compile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

// viewCase is a host, a policy and the mounts that it becomes, less the defaults.
type viewCase struct {
	name  string
	host  []string
	rules []string
	want  []string
}

func (c viewCase) run(t *testing.T) {
	t.Helper()
	tree := roottest.Host(t, c.host...)
	first := compileOK(t, tree, c.rules...)
	roottest.Same(t, "mounts", roottest.Mounts(first), c.want)
	checkView(t, tree, first)
	for seed := range int64(3) {
		mixed := append([]string{}, c.rules...)
		rand.New(rand.NewSource(seed)).Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		if other := compileOK(t, tree, mixed...); !reflect.DeepEqual(first, other) {
			t.Errorf("order matters: %q\n got  %+v\n want %+v", mixed, other, first)
		}
	}
}

func TestMounts(t *testing.T) {
	for _, c := range []viewCase{
		{
			name: "nested grants keep their own mode (fs01)",
			host: []string{
				"f /tmp/b/p/src/a", "f /tmp/b/p/state/vendor/v", "f /tmp/b/p/state/secret/k", "d /tmp/b/p/cache", "f /tmp/b/other/o",
			},
			rules: []string{
				"read /tmp/b/p", "write /tmp/b/p/state", "read /tmp/b/p/state/vendor", "deny /tmp/b/p/state/secret",
				"tmpfs /tmp/b/p/cache", "tmpfs /tmp", "workdir /tmp/b/p/state",
			},
			want: []string{
				"tmpfs /tmp/", "ro /tmp/b/p/", "rw /tmp/b/p/state/", "tmpfs /tmp/b/p/cache/", "ro /tmp/b/p/state/vendor/",
				"mask /tmp/b/p/state/secret/",
			},
		},
		{name: "a wider grant holds a narrower one", host: []string{"f /a/b/c"}, rules: []string{"read /a", "read /a/b", "read /a/b/c"}, want: []string{"ro /a/"}},
		{name: "but not across a mount of the host", host: []string{"f /a/b/c", "m /a/b"}, rules: []string{"read /a", "read /a/b"}, want: []string{"ro /a/", "ro /a/b/"}},
		{name: "nor across a tmpfs", host: []string{"f /a/b/c"}, rules: []string{"read /a", "tmpfs /a/b", "read /a/b/c"}, want: []string{"ro /a/", "tmpfs /a/b/", "ro /a/b/c"}},
		{name: "a prefix is no parent", host: []string{"f /a/b/x", "f /a/bc/x"}, rules: []string{"read /a/b", "deny /a/bc", "write /a/bc/x"}, want: []string{"ro /a/b/", "mask /a/bc/x"}},
		{name: "write beats read", host: []string{"d /a"}, rules: []string{"read /a", "write /a"}, want: []string{"rw /a/"}},
		{name: "bind beats write", host: []string{"d /a", "d /b"}, rules: []string{"write /a", "bind /b /a"}, want: []string{"ro /a/ from /b"}},
		{name: "tmpfs beats bind", host: []string{"d /b"}, rules: []string{"tmpfs /a", "bind /b /a"}, want: []string{"tmpfs /a/"}},
		{name: "deny beats all", host: []string{"d /a/x", "d /b"}, rules: []string{"read /a", "write /a", "bind /b /a", "tmpfs /a", "tmpfs /a/x", "deny /a"}, want: []string{"mask /a/"}},
		{name: "single files (fs06)", host: []string{"f /c/app.json"}, rules: []string{"bind /c/app.json /w/app.json rw"}, want: []string{"rw /w/app.json from /c/app.json"}},
		{name: "a socket", host: []string{"s /run/x.sock"}, rules: []string{"read /run/x.sock"}, want: []string{"ro /run/x.sock"}},
		{name: "workspace elsewhere", host: []string{"d /src"}, rules: []string{"workspace /src /w"}, want: []string{"rw /w/ from /src"}},
		{name: "workspace at home", host: []string{"d /home/u"}, rules: []string{"workspace /home/u /home/u"}, want: []string{"rw /home/u/"}},
		{name: "workspace in memory", rules: []string{"workspace tmpfs /w exec"}, want: []string{"tmpfs /w/"}},
		{name: "a grant that holds the home shows it", host: []string{"f /home/u/f"}, rules: []string{"read /home"}, want: []string{"ro /home/"}},
		{name: "target through a link behind a bind", host: []string{"l /a/l /a/d", "d /a/d/e", "d /b"}, rules: []string{"read /a", "bind /b /a/l/e"}, want: []string{"ro /a/", "ro /a/d/e/ from /b"}},
		{
			name: "what a link behind a bind moves comes after what covers it",
			host: []string{"l /a/l /x/y/z", "d /x/y/z/t", "d /b"}, rules: []string{"read /a", "bind /b /a/l/t", "read /x/y"},
			want: []string{"ro /a/", "ro /x/y/", "ro /x/y/z/t/ from /b"},
		},
		{name: "missing grants left out", host: []string{"d /a"}, rules: []string{"skip", "read /no", "bind /gone /w", "read /a"}, want: []string{"ro /a/"}},
	} {
		t.Run(c.name, c.run)
	}
}

func TestLinks(t *testing.T) {
	for _, c := range []viewCase{
		{name: "a link in the own root", host: []string{"l /a/l d", "f /a/d/f"}, rules: []string{"read /a/l"}, want: []string{"ro /a/d/"}},
		{name: "a link in a tmpfs", host: []string{"l /tmp/l d", "f /tmp/d/f"}, rules: []string{"read /tmp/l"}, want: []string{"ro /tmp/d/", "ro /tmp/l/ from /tmp/d"}},
		{name: "a link behind a bind", host: []string{"l /a/l d", "f /a/d/f"}, rules: []string{"read /a", "write /a/l"}, want: []string{"ro /a/", "rw /a/d/"}},
		{
			name:  "nested grants show under both names",
			host:  []string{"l /tmp/l d", "f /tmp/d/s/f", "d /tmp/d/c"},
			rules: []string{"read /tmp/l", "write /tmp/l/s", "tmpfs /tmp/l/c"},
			want: []string{
				"ro /tmp/d/", "ro /tmp/l/ from /tmp/d", "rw /tmp/d/s/", "rw /tmp/l/s/ from /tmp/d/s", "tmpfs /tmp/d/c/", "tmpfs /tmp/l/c/",
			},
		},
		{
			name: "denies through links (fs02)",
			host: []string{
				"f /tmp/t/dot/bashrc", "l /tmp/t/ws/.bashrc /tmp/t/dot/bashrc", "f /tmp/t/ws/shared/pre", "l /tmp/t/ws/.git/hooks ../shared",
				"l /tmp/t/ws/.env /nonexistent/x/.env", "f /tmp/t/real/f", "l /tmp/t/link real", "f /tmp/t/py/3.12.5/bin/python3",
				"l /tmp/t/py/3.12 3.12.5", "l /tmp/t/venv/bin/python /tmp/t/py/3.12/bin/python3",
			},
			rules: []string{
				"write /tmp/t/ws", "deny /tmp/t/ws/.bashrc", "deny /tmp/t/ws/.git/hooks", "deny /tmp/t/ws/.env", "read /tmp/t/link",
				"read /tmp/t/venv", "read /tmp/t/py/3.12", "workdir /tmp/t/ws",
			},
			want: []string{
				"ro /tmp/t/link/ from /tmp/t/real", "ro /tmp/t/real/", "ro /tmp/t/venv/", "rw /tmp/t/ws/",
				"ro /tmp/t/py/3.12/ from /tmp/t/py/3.12.5", "ro /tmp/t/py/3.12.5/", "rw /tmp/t/ws/.git/", "mask /tmp/t/ws/.bashrc",
				"mask /tmp/t/ws/.env", "mask /tmp/t/ws/shared/", "mask /tmp/t/ws/.git/hooks",
			},
		},
		{
			name:  "a deny by link hides the file in the grant too",
			host:  []string{"f /d/key", "l /w/k /d/key"},
			rules: []string{"write /w", "read /d", "deny /w/k"},
			want:  []string{"ro /d/", "rw /w/", "mask /d/key", "mask /w/k"},
		},
	} {
		t.Run(c.name, c.run)
	}
	tree := roottest.Host(t, "l /o/v/bin/python /o/py/3.12/bin/python3", "l /o/py/3.12 3.12.5", "f /o/py/3.12.5/bin/python3")
	v := compileOK(t, tree, "read /o/v/bin/python")
	roottest.Same(t, "every hop", roottest.Entries(v, "/o"), []string{
		"/o/", "/o/py/", "/o/py/3.12 -> 3.12.5", "/o/py/3.12.5/", "/o/py/3.12.5/bin/", "/o/py/3.12.5/bin/python3",
		"/o/v/", "/o/v/bin/", "/o/v/bin/python -> /o/py/3.12/bin/python3",
	})
	spot, err := v.Lookup(tree, "/o/v/bin/python")
	if err != nil || spot.Host != "/o/py/3.12.5/bin/python3" || spot.Writable || spot.Dir {
		t.Errorf("Lookup through two links = %+v, %v", spot, err)
	}
}

func TestErrors(t *testing.T) {
	tree := roottest.Host(t, "f /a/f", "d /a/d", "d /b", "c /devs/null", "l /loop loop", "l /top /", "l /p /proc/self/cwd", "l /proc/self/cwd /a",
		"l /dangling /nowhere", "d /sys/x", "l /a/out /dev", "f /dev/null")
	for _, c := range []struct {
		rules []string
		code  string
		text  string // in message or hint
	}{
		{[]string{"read /no"}, "grant_missing", `rule read "/no" does not exist`},
		{[]string{"read /no"}, "grant_missing", `files.missing = "skip"`},
		{[]string{"read /a/f/below"}, "grant_missing", "does not exist"},
		{[]string{"write /dangling"}, "grant_missing", `leads to "/nowhere"`},
		{[]string{"skip", "workspace /no /w"}, "grant_missing", "/no"},
		{[]string{"bind /no /w"}, "grant_missing", "/no"},
		{[]string{"read /loop"}, "grant_missing", "symbolic links"},
		{[]string{"read /"}, "policy_invalid", `files.base = "host"`},
		{[]string{"write /"}, "policy_invalid", "root"},
		{[]string{"read /top"}, "policy_invalid", "root"},
		{[]string{"bind / /w"}, "policy_invalid", "root"},
		{[]string{"bind /a /"}, "policy_invalid", "root"},
		{[]string{"tmpfs /"}, "policy_invalid", "root"},
		{[]string{"deny /"}, "policy_invalid", "root"},
		{[]string{"deny /top"}, "policy_invalid", "cannot be denied"},
		{[]string{"read /proc/self"}, "policy_invalid", "/proc"},
		{[]string{"read /p"}, "policy_invalid", "/proc"},
		{[]string{"read /dev/null"}, "policy_invalid", "/dev"},
		{[]string{"bind /sys/x /w"}, "policy_invalid", "/sys"},
		{[]string{"bind /a /proc"}, "policy_invalid", "/proc"},
		{[]string{"bind /a /proc/x"}, "policy_invalid", "/proc"},
		{[]string{"read /a", "bind /b /a/out/shm"}, "policy_invalid", "/dev"},
		{[]string{"tmpfs /dev/shm"}, "policy_invalid", "/dev"},
		{[]string{"deny /sys"}, "policy_invalid", "/sys"},
		{[]string{"read /devs/null"}, "policy_invalid", "device"},
		{[]string{"read a"}, "policy_invalid", "absolute"},
		{[]string{"read /a/../b"}, "policy_invalid", "clean"},
		{[]string{"write /a", "bind /b /a/new"}, "policy_invalid", `"/a/new" does not exist on the host`},
		{[]string{"write /a", "bind /b /a/new"}, "policy_invalid", "create it on the host first"},
		{[]string{"write /a", "tmpfs /a/new/cache"}, "policy_invalid", "/a/new/cache"},
		{[]string{"write /a", "bind /b /a/f"}, "policy_invalid", "not a directory"},
		{[]string{"write /a", "bind /a/f /a/d"}, "policy_invalid", "is a directory"},
		{[]string{"bind /a/f /etc"}, "policy_invalid", "own root"},
		{[]string{"bind /a /w", "bind /b /w"}, "policy_invalid", "one target"},
		{[]string{"workspace /a /w exec"}, "policy_invalid", `workspace.source = "tmpfs"`},
		{[]string{"workspace /a/f /w"}, "policy_invalid", "not a directory"},
		{[]string{"base nix"}, "policy_invalid", "nix"},
		{[]string{"base rootfs /no"}, "grant_missing", "/no"},
		{[]string{"base rootfs /a/f"}, "grant_missing", "/a/f"},
		{[]string{"base rootfs /top"}, "policy_invalid", `files.base = "host"`},
		{[]string{"write /a", "workdir /a/gone"}, "grant_missing", `workdir "/a/gone" does not exist in the sandbox`},
		{[]string{"write /a", "workdir /a/f"}, "grant_missing", "not a directory"},
		{[]string{"write /a", "deny /a/d", "workdir /a/d"}, "grant_missing", "is denied"},
		{[]string{"workdir /b"}, "grant_missing", "/b"},
		{[]string{"workdir /tmp/x"}, "grant_missing", "/tmp/x"},
		{[]string{"workdir /proc/self/fd/9"}, "policy_invalid", "/proc"},
		{[]string{"read /a", "workdir /a/out"}, "policy_invalid", "/dev"},
	} {
		_, err := Compile(request(tree, roottest.Rules(t, c.rules...)))
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != c.code || !strings.Contains(e.Error()+"\n"+e.Hint, c.text) {
			t.Errorf("%q: got %#v, want %s with %q", c.rules, err, c.code, c.text)
		}
	}
}

func TestWorkdir(t *testing.T) {
	tree := roottest.Host(t, "d /a/d", "l /a/l d", "d /tmp/x/y/z")
	for _, c := range []struct {
		rules []string
		want  string
	}{
		{nil, "/"},
		{[]string{"workspace /a /w"}, "/w"},
		{[]string{"workspace tmpfs /w"}, "/w"},
		{[]string{"read /a", "workdir /a/l"}, "/a/l"},
		{[]string{"read /tmp/x/y", "workdir /tmp/x"}, "/tmp/x"},
		{[]string{"read /tmp/x/y", "workdir /tmp/x/y/z"}, "/tmp/x/y/z"},
		{[]string{"workdir /home/u"}, "/home/u"},
	} {
		if v := compileOK(t, tree, c.rules...); v.Workdir != c.want {
			t.Errorf("%q: workdir %q, want %q", c.rules, v.Workdir, c.want)
		}
	}
}

func TestTmpfsLimits(t *testing.T) {
	for _, c := range []struct {
		in           rootfs.Tmpfs
		size, inodes int64
		mode         uint32
	}{
		{rootfs.Tmpfs{Path: "/x"}, 1 << 30, 262144, 0o755},
		{rootfs.Tmpfs{Path: "/tmp"}, 1 << 30, 262144, 0o1777},
		{rootfs.Tmpfs{Path: "/x", Size: 64 << 20}, 64 << 20, 16384, 0o755},
		{rootfs.Tmpfs{Path: "/x", Size: 4096}, 4096, 1024, 0o755},
		{rootfs.Tmpfs{Path: "/x", Size: 1 << 40}, 1 << 40, 262144, 0o755},
		{rootfs.Tmpfs{Path: "/x", Size: 1 << 20, Inodes: 7}, 1 << 20, 7, 0o755},
	} {
		if m := (&compiler{}).newTmpfs(c.in); m.Size != c.size || m.Inodes != c.inodes || m.Mode != c.mode || !m.Owned {
			t.Errorf("newTmpfs(%+v) = %+v", c.in, m)
		}
	}
	p := roottest.Rules(t)
	p.Tmpfs = []rootfs.Tmpfs{{Path: "/x", Size: 1 << 20, From: "a"}, {Path: "/x", Size: 2 << 20, From: "b"}}
	v, err := Compile(request(roottest.Host(t), p))
	if err != nil || v.Mounts[0].Size+v.Mounts[1].Size+v.Mounts[2].Size != 2<<30-1<<30+1<<30+2<<20 {
		t.Errorf("two limits: want the larger, got %+v, %v", v.Mounts, err)
	}
	v = compileOK(t, roottest.Host(t), "workspace tmpfs /w exec")
	for _, m := range v.Mounts {
		if m.Target == "/w" && (!m.PerExec || !m.Owned || m.Mode != 0o755) {
			t.Errorf("workspace = %+v", m)
		}
	}
}

func TestOddNames(t *testing.T) { // fs09
	names := []string{
		"a b", "new\nline", "uni-é-日本", "-dash", "co:lon", "com,ma=x", "qu'o\"te", "star*[x]?", `back\slash`, "#h", "$HOME",
		"trail ", strings.Repeat("n", 255), "\xff",
	}
	tree, p := roottest.Host(t), roottest.Rules(t)
	for _, n := range names {
		tree.Add("/odd/"+n+"/deny", 0o644)
		p.Write = append(p.Write, rootfs.Grant{Path: "/odd/" + n, From: "w"})
		p.Deny = append(p.Deny, rootfs.Grant{Path: "/odd/" + n + "/deny", From: "d"})
	}
	p.Workdir = rootfs.Grant{Path: "/odd/new\nline", From: "workdir"}
	v, err := Compile(request(tree, p))
	if err != nil {
		t.Fatal(err)
	}
	if got := len(roottest.Mounts(v)); got != 2*len(names) {
		t.Errorf("%d mounts, want %d: %q", got, 2*len(names), roottest.Mounts(v))
	}
	for _, n := range names {
		if at := v.Inside("/odd/" + n); len(at) != 1 {
			t.Errorf("%q is at %q", n, at)
		}
		if at := v.Inside("/odd/" + n + "/deny"); len(at) != 0 {
			t.Errorf("denied in %q, but at %q", n, at)
		}
	}
}

func TestLargePolicies(t *testing.T) { // fs10
	tree, p := &quickTree{dirs: map[string]bool{"/": true, "/ws": true, "/g": true}}, roottest.Rules(t, "workdir /ws", "write /ws")
	for i := range 2000 {
		p.Deny = append(p.Deny, rootfs.Grant{Path: fmt.Sprintf("/ws/f%d", i), From: "d"}, rootfs.Grant{Path: fmt.Sprintf("/g/f%d/x", i), From: "d"})
		p.Read = append(p.Read, rootfs.Grant{Path: fmt.Sprintf("/g/f%d", i), From: "r"})
		p.Secrets = append(p.Secrets, rootfs.Grant{Path: fmt.Sprintf("/secret/f%d", i), From: "s"})
	}
	start := time.Now()
	v, err := Compile(request(tree, p))
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("4000 denies, 2000 grants and 2000 secrets took %v", took)
	}
	if n := len(roottest.Mounts(v)); n != 1+2000+2000 || len(v.Absent) != 2000 {
		t.Errorf("%d mounts, %d absent", n, len(v.Absent))
	}
}

// quickTree has every file whose parent is one of its directories.
type quickTree struct{ dirs map[string]bool }

func (q *quickTree) Lstat(p string) (hostfs.Info, error) {
	switch {
	case q.dirs[p]:
		return hostfs.Info{Mode: fs.ModeDir | 0o755, Nlink: 2}, nil
	case q.dirs[pathname.Parent(p)] && p != "/secret":
		return hostfs.Info{Mode: 0o644, Nlink: 1}, nil
	}
	return hostfs.Info{}, fs.ErrNotExist
}
func (q *quickTree) Readlink(string) (string, error)  { return "", fs.ErrInvalid }
func (q *quickTree) ReadDir(string) ([]string, error) { return nil, nil }
func (q *quickTree) ReadFile(string) ([]byte, error)  { return nil, fs.ErrNotExist }
func (q *quickTree) Mounts() []hostfs.Mount           { return nil }
