package rootfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// installed is a host with programs that keep data in /etc and /var, and much else that is there.
var installed = []string{
	"f /usr/bin/tex", "d /usr/share/texmf", "d /usr/lib/ghc", "d /usr/share/big", "d /usr/share/dpkg",
	"f /etc/texmf/texmf.cnf", "f /etc/texmf/web2c/a", "f /var/lib/texmf/ls-R", "d /var/lib/texmf/web2c", "f /var/cache/texmf/x",
	"f /var/lib/ghc/package.cache", "l /var/lib/ghc/link /nowhere",
	"f /var/lib/big/1", "f /var/lib/big/2", "f /var/lib/big/3", "f /var/lib/big/4", "f /var/lib/big/5", "f /var/lib/big/6", "f /var/lib/big/7",
	"f /var/lib/dpkg/status", "f /var/lib/dpkg/info/a.list", "f /var/lib/dpkg/lock", "d /var/lib/dpkg/updates",
	"f /etc/hostname", "f /etc/machine-id",
}

func TestProgramData(t *testing.T) {
	tree := host(t, installed...)
	tree.content = true
	v := compileOK(t, tree, "base system")
	checkView(t, tree, v)
	same(t, "mounts", mounts(v), []string{"ro /usr/", "ro /var/lib/big/", "ro /var/lib/dpkg/info/"})
	same(t, "entries", entries(v, "/var"), []string{
		"/var/", "/var/cache/", "/var/cache/texmf/", "/var/cache/texmf/x", "/var/lib/", "/var/lib/big/", "/var/lib/dpkg/",
		"/var/lib/dpkg/info/", "/var/lib/dpkg/status", "/var/lib/dpkg/updates/", "/var/lib/ghc/", "/var/lib/ghc/link -> /nowhere",
		"/var/lib/ghc/package.cache", "/var/lib/texmf/", "/var/lib/texmf/ls-R", "/var/lib/texmf/web2c/", "/var/tmp -> /tmp",
	})
	for _, hidden := range []string{"/etc/machine-id", "/var/lib/dpkg/lock"} {
		if spot, err := v.Lookup(tree, hidden); err == nil {
			t.Errorf("%s is inside: %+v", hidden, spot)
		}
	}
}

// TestProgramDataIsForEverybody has a directory that is shown, and changes one thing of it or of the host.
func TestProgramDataIsForEverybody(t *testing.T) {
	mode := func(p string, m fs.FileMode) func(*fakeTree) {
		return func(f *fakeTree) { f.nodes[p].mode = f.nodes[p].mode&fs.ModeType | m }
	}
	uid := func(p string) func(*fakeTree) { return func(f *fakeTree) { f.nodes[p].uid = 7 } }
	gid := func(p string, g int) func(*fakeTree) { return func(f *fakeTree) { f.nodes[p].gid = g } }
	add := func(line string) func(*fakeTree) {
		return func(f *fakeTree) {
			for p, n := range host(t, line).nodes {
				if f.nodes[p] == nil {
					f.nodes[p] = n
				}
			}
		}
	}
	many := func(f *fakeTree) {
		for i := range maxDataTree {
			f.add("/var/lib/p/"+strings.Repeat("x", i+1), 0o644)
		}
	}
	both := func(a, b func(*fakeTree)) func(*fakeTree) { return func(f *fakeTree) { a(f); b(f) } }
	for _, c := range []struct {
		name   string
		change func(*fakeTree)
		why    string // "": still shown
	}{
		{"nothing", func(*fakeTree) {}, ""},
		{"a link to where nobody may read", add("l /var/lib/p/l /etc/shadow"), ""},
		{"writable by root's group", mode("/var/lib/p/d", 0o775), ""},
		{"a set-group-id directory", mode("/var/lib/p/d", 0o755|fs.ModeSetgid), ""},
		{"an unreadable file", mode("/var/lib/p/d/f", 0o640), "/var/lib/p/d/f cannot be read by everybody"},
		{"a file for root alone", mode("/var/lib/p/d/f", 0o600), "/var/lib/p/d/f cannot be read by everybody"},
		{"a directory that cannot be searched", mode("/var/lib/p/d", 0o744), "/var/lib/p/d cannot be read by everybody"},
		{"a directory for root alone", mode("/var/lib/p", 0o700), "/var/lib/p cannot be read by everybody"},
		{"a file that everybody may write", mode("/var/lib/p/d/f", 0o666), "can be written by others"},
		{"a file that a group may write", both(mode("/var/lib/p/d/f", 0o664), gid("/var/lib/p/d/f", 7)), "can be written by others"},
		{"a setuid file", mode("/var/lib/p/d/f", 0o755|fs.ModeSetuid), "has a special mode"},
		{"another owner", uid("/var/lib/p"), "belongs to uid 7"},
		{"another owner below", uid("/var/lib/p/d/f"), "belongs to uid 7"},
		{"a socket", add("s /var/lib/p/d/sock"), "is neither a file nor a directory"},
		{"a named pipe", add("p /var/lib/p/pipe"), "is neither a file nor a directory"},
		{"a key", add("f /var/lib/p/d/server.key"), "has the name of a file with keys"},
		{"a key of ssh", add("f /var/lib/p/id_ed25519"), "has the name of a file with keys"},
		{"a hidden file of passwords", add("f /var/lib/p/.netrc"), "has the name of a file with keys"},
		{"a service of systemd", add("f /usr/lib/systemd/system/p.service"), "p is a service"},
		{"a daemon of systemd", add("f /usr/lib/systemd/system/pd.service"), "p is a service"},
		{"a template of systemd", add("f /usr/lib/systemd/system/p@.service"), "p is a service"},
		{"a service of System V", add("f /etc/init.d/p"), "p is a service"},
		{"no program", func(f *fakeTree) { delete(f.nodes, "/usr/share/p") }, "no program of that name is installed"},
		{"a mount in it", func(f *fakeTree) { f.mount("9:9", "/", "/var/lib/p/d") }, "has a mount of the host's in it"},
		{"too much in it", many, "has more in it than is looked at"},
		{"/var/lib of somebody's", uid("/var/lib"), "-"},
	} {
		tree := host(t, "f /usr/bin/p", "d /usr/share/p", "f /var/lib/p/d/f", "f /var/lib/p/f2")
		c.change(tree)
		x := explainer(t, tree, "base system")
		e := x.Explain("/var/lib/p/f2")
		if e.Inside() != (c.why == "") {
			t.Errorf("%s: %s", c.name, e.Is)
		}
		if why := strings.Join(e.Why, "\n"); c.why != "-" && !strings.Contains(why, c.why) {
			t.Errorf("%s: explained by %q, want %q", c.name, why, c.why)
		}
	}
}

// TestProgramDataNames: names that are never shown, although everybody may read what they have.
func TestProgramDataNames(t *testing.T) {
	for _, name := range neverShown {
		name = strings.ReplaceAll(name, "*", "x")
		tree := host(t, "d /usr/share/"+name, "f /etc/"+name+"/a", "f /var/lib/"+name+"/a", "f /var/cache/"+name+"/a")
		v := compileOK(t, tree, "base system")
		for _, dir := range dataParents {
			if spot, err := v.Lookup(tree, dir+"/"+name+"/a"); err == nil && name != "alternatives" && spot.Path != "/var/lib/rpm/a" {
				t.Errorf("%s/%s is inside: %+v", dir, name, spot)
			}
		}
	}
}

// TestProgramDataParts: a directory to which other packages add is its program's, if that is a user's command.
func TestProgramDataParts(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  string // "": it is shown
	}{
		{"a command's", []string{"d /usr/share/p", "f /usr/bin/p"}, ""},
		{"of a command without a directory", []string{"f /usr/bin/p"}, "no program of that name is installed: neither /usr/share/p nor"},
		{"of what is no command", []string{"d /usr/lib/p", "f /usr/sbin/p"}, "p.d is a directory to which other packages add, and /usr/bin/p is not there"},
		{"a service's", []string{"d /usr/lib/p", "f /usr/bin/p", "f /etc/init.d/p"}, "p.d is a service"},
	} {
		tree := host(t, append(c.lines, "f /etc/p.d/a")...)
		e := explainer(t, tree, "base system").Explain("/etc/p.d/a")
		if why := strings.Join(e.Why, "\n"); e.Inside() != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%s: %s, by %q, want %q", c.name, e.Is, why, c.want)
		}
	}
	for _, name := range neverShown {
		name = strings.ReplaceAll(name, "*", "x")
		tree := host(t, "d /usr/share/"+name, "f /usr/bin/"+name, "f /etc/"+name+".d/a")
		if spot, err := compileOK(t, tree, "base system").Lookup(tree, "/etc/"+name+".d/a"); err == nil {
			t.Errorf("%s.d is inside: %+v", name, spot)
		}
	}
}

func TestProgramDataWithPolicies(t *testing.T) {
	tree := host(t, append(slices.Clone(installed), "f /w/a")...)
	tree.content = true
	for _, c := range []struct {
		name, rule string
		inside     map[string]bool
	}{
		{"a secret in it hides the directory", "secret /var/lib/texmf/ls-R", map[string]bool{"/var/lib/texmf": false, "/var/lib/ghc/package.cache": true}},
		{"a deny masks", "deny /var/lib/ghc/package.cache", map[string]bool{"/var/lib/texmf/ls-R": true}},
		{"a new target stands alone", "bind /w /var/lib/texmf/new ro", map[string]bool{"/var/lib/texmf/new/a": true, "/var/lib/texmf/ls-R": false}},
		{"a target of the host's is covered", "bind /w/a /var/lib/texmf/ls-R ro", map[string]bool{"/var/lib/texmf/ls-R": true, "/var/lib/texmf/web2c": true}},
		{"a grant wins", "write /var/lib/ghc", map[string]bool{"/var/lib/ghc/package.cache": true}},
	} {
		v := compileOK(t, tree, "base system", c.rule)
		checkView(t, tree, v)
		for p, want := range c.inside {
			if _, err := v.Lookup(tree, p); (err == nil) != want {
				t.Errorf("%s: %s inside: %v", c.name, p, err)
			}
		}
		if spot, err := v.Lookup(tree, "/var/lib/ghc/package.cache"); c.rule[:4] == "deny" && (err != nil || spot.Kind != PlaceMask) {
			t.Errorf("%s: %+v, %v", c.name, spot, err)
		}
	}
}

// TestCopiesKeepTimes: what has a copy in the sandbox's own root has there the time that it has on the host, and nothing else has one.
func TestCopiesKeepTimes(t *testing.T) {
	tree := host(t, append(slices.Clone(installed), "f /etc/services", "f /etc/ssl/openssl.cnf")...)
	tree.content = true
	var copies []string
	for _, e := range compileOK(t, tree, "base system").Entries {
		if e.Modified == 0 {
			continue
		}
		copies = append(copies, e.Path)
		if e.Modified != int64(tree.nodes[e.Path].ino) { // what Lstat of this tree gives
			t.Errorf("%s has the time %d", e.Path, e.Modified)
		}
	}
	same(t, "copies", copies, []string{
		"/etc/services", "/etc/ssl/openssl.cnf", "/etc/texmf", "/etc/texmf/texmf.cnf", "/etc/texmf/web2c", "/etc/texmf/web2c/a",
		"/var/cache/texmf", "/var/cache/texmf/x", "/var/lib/dpkg/status", "/var/lib/dpkg/updates", "/var/lib/ghc", "/var/lib/ghc/package.cache",
		"/var/lib/texmf", "/var/lib/texmf/ls-R", "/var/lib/texmf/web2c",
	})
}

// TestList compares the quick look at directories with the slow one, on real files.
func TestList(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o751); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	for _, dirsOnly := range []bool{false, true} {
		quick, err := listDir(hostTree{}, dir, dirsOnly)
		if err != nil {
			t.Fatal(err)
		}
		slow, err := listDir(struct{ Tree }{hostTree{}}, dir, dirsOnly)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(quick, func(a, b listed) int { return strings.Compare(a.Name, b.Name) })
		if len(quick) != len(slow) {
			t.Fatalf("%v, %v", quick, slow)
		}
		for i, e := range quick {
			if e.Name == "l" {
				slow[i].Info = Info{Mode: fs.ModeSymlink}
			}
			if e != slow[i] {
				t.Errorf("%+v, slowly %+v", e, slow[i])
			}
		}
	}
	if _, err := listDir(hostTree{}, filepath.Join(dir, "l"), false); err == nil {
		t.Error("a link was followed")
	}
	some, err := SomeNames(hostTree{}, dir, 9)
	if err != nil {
		t.Error(err)
	}
	same(t, "some", some, []string{"a", "b", "c", "d", "l"})
	if n, err := SomeNames(hostTree{}, dir, 2); err != nil || len(n) != 2 || !slices.IsSorted(n) {
		t.Errorf("two names: %q, %v", n, err)
	}
	if n, err := SomeNames(hostTree{}, dir+"/nowhere", 2); err == nil {
		t.Errorf("of nothing: %q", n)
	}
}

// TestProgramDataOfThisHost: whatever this machine has, everything that is shown can be read by everybody.
func TestProgramDataOfThisHost(t *testing.T) {
	tree, err := HostTree()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range programData(tree) {
		if slices.Contains(packageData, d.path) {
			continue // root's program may find a lock in it, which the kernel keeps shut
		}
		err := filepath.WalkDir(d.path, func(p string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := tree.Lstat(p)
			if err == nil && info.Mode&fs.ModeSymlink == 0 && info.Mode&0o004 == 0 {
				t.Errorf("%s: %s", p, info.Mode)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkProgramData(b *testing.B) {
	tree, err := HostTree()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		programData(tree)
	}
}
