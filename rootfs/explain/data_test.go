package explain

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

// TestProgramDataIsForEverybody has a directory that is shown, and changes one thing of it or of the host.
func TestProgramDataIsForEverybody(t *testing.T) {
	mode := func(p string, m fs.FileMode) func(*roottest.Tree) {
		return func(f *roottest.Tree) { f.Nodes[p].Mode = f.Nodes[p].Mode&fs.ModeType | m }
	}
	uid := func(p string) func(*roottest.Tree) { return func(f *roottest.Tree) { f.Nodes[p].UID = 7 } }
	gid := func(p string, g int) func(*roottest.Tree) { return func(f *roottest.Tree) { f.Nodes[p].GID = g } }
	add := func(line string) func(*roottest.Tree) {
		return func(f *roottest.Tree) {
			for p, n := range roottest.Host(t, line).Nodes {
				if f.Nodes[p] == nil {
					f.Nodes[p] = n
				}
			}
		}
	}
	many := func(f *roottest.Tree) {
		for i := range 1000 { // as many as are looked at
			f.Add("/var/lib/p/"+strings.Repeat("x", i+1), 0o644)
		}
	}
	both := func(a, b func(*roottest.Tree)) func(*roottest.Tree) { return func(f *roottest.Tree) { a(f); b(f) } }
	for _, c := range []struct {
		name   string
		change func(*roottest.Tree)
		why    string // "": still shown
	}{
		{"nothing", func(*roottest.Tree) {}, ""},
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
		{"no program", func(f *roottest.Tree) { delete(f.Nodes, "/usr/share/p") }, "no program of that name is installed"},
		{"a mount in it", func(f *roottest.Tree) { f.AddMount("9:9", "/", "/var/lib/p/d") }, "has a mount of the host's in it"},
		{"too much in it", many, "has more in it than is looked at"},
		{"/var/lib of somebody's", uid("/var/lib"), "-"},
	} {
		tree := roottest.Host(t, "f /usr/bin/p", "d /usr/share/p", "f /var/lib/p/d/f", "f /var/lib/p/f2")
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
		tree := roottest.Host(t, append(c.lines, "f /etc/p.d/a")...)
		e := explainer(t, tree, "base system").Explain("/etc/p.d/a")
		if why := strings.Join(e.Why, "\n"); e.Inside() != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%s: %s, by %q, want %q", c.name, e.Is, why, c.want)
		}
	}
}
