package compile

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

// TestOrder draws a whole view, entries and mounts, as it is handed over.
func TestOrder(t *testing.T) {
	tree := roottest.Host(t, "f /p/src/a", "f /p/state/secret/k", "d /p/cache", "l /p/cur /v/1.2", "l /v/1 1.2", "f /v/1.2/lib", "f /cfg/app.json", "d /adapter")
	v := compileOK(t, tree, "read /p", "write /p/state", "deny /p/state/secret", "tmpfs /p/cache", "read /v/1", "bind /cfg/app.json /w/app.json rw",
		"bind /adapter /w/adapter", "workspace tmpfs /w", "deny /p/.env")
	checkView(t, tree, v)
	roottest.Same(t, "entries", roottest.Entries(v, "/"), []string{
		"/dev/", "/etc/", "/etc/group", "/etc/gshadow", "/etc/hostname", "/etc/hosts", "/etc/nsswitch.conf", "/etc/passwd", "/etc/resolv.conf",
		"/etc/shadow", "/home/", "/home/u/", "/p/", "/proc/", "/run/", "/sys/", "/tmp/", "/v/", "/v/1 -> 1.2", "/v/1.2/", "/var/", "/var/tmp -> /tmp", "/w/",
	})
	var all []string
	for _, m := range v.Mounts {
		all = append(all, roottest.MountLine(m)+" ("+m.From+")")
	}
	roottest.Same(t, "mounts", all, []string{
		"tmpfs /tmp/ (default)",
		"ro /p/ (rule read)",
		"tmpfs /w/ (rule workspace)",
		"tmpfs /home/u/ (default)",
		"ro /v/1.2/ (rule read)",
		"rw /p/state/ (rule write)",
		"ro /w/adapter/ from /adapter (rule bind)",
		"rw /w/app.json from /cfg/app.json (rule bind)",
		"tmpfs /p/cache/ (rule tmpfs)",
		"mask /p/state/secret/ (rule deny)",
	})
	if len(v.Absent) != 1 || v.Workdir != "/w" {
		t.Errorf("absent %+v, workdir %q", v.Absent, v.Workdir)
	}
	text, err := json.Marshal(v)
	if err != nil || strings.Contains(string(text), "link") && !strings.Contains(string(text), "symlink") {
		t.Errorf("as JSON: %s, %v", text, err)
	}
}

func TestSkipped(t *testing.T) {
	tree := roottest.Host(t, "d /a", "l /l /gone")
	v := compileOK(t, tree, "skip", "read /z", "write /l", "bind /no /w", "read /a", "read /z")
	roottest.Same(t, "skipped", v.Skipped, []string{
		`rule bind "/no" does not exist`, `rule read "/z" does not exist`, `rule write "/l" leads to "/gone", which does not exist`,
	})
	// What is left out makes no place either.
	roottest.Same(t, "entries", roottest.Entries(v, "/w"), nil)
}

func TestSameTarget(t *testing.T) {
	tree := roottest.Host(t, "d /a", "d /b", "l /l a")
	for _, c := range []struct {
		rules, want []string
	}{
		{[]string{"bind /a /w", "bind /a /w rw"}, []string{"rw /w/ from /a"}},
		{[]string{"bind /a /w", "bind /l /w"}, []string{"ro /w/ from /a"}},
		{[]string{"read /l", "write /a"}, []string{"rw /a/"}},
		{[]string{"bind /a /w", "tmpfs /w", "bind /a /w rw"}, []string{"tmpfs /w/"}},
		{[]string{"read /l", "bind /b /l"}, []string{"ro /a/ from /b"}},
		{[]string{"workspace tmpfs /w exec", "tmpfs /w"}, []string{"tmpfs /w/"}},
	} {
		v := compileOK(t, tree, c.rules...)
		checkView(t, tree, v)
		roottest.Same(t, strings.Join(c.rules, ", "), roottest.Mounts(v), c.want)
	}
	v := compileOK(t, tree, "workspace tmpfs /w exec", "tmpfs /w")
	if i := slices.IndexFunc(v.Mounts, func(m rootfs.Mount) bool { return m.Target == "/w" }); !v.Mounts[i].PerExec {
		t.Errorf("the workspace gave way to a tmpfs: %+v", v.Mounts[i])
	}
}

func TestTargetsThatRunInCircles(t *testing.T) {
	tree := roottest.Host(t, "l /a/x y", "l /a/y x", "d /b")
	_, err := Compile(request(tree, roottest.Rules(t, "read /a", "bind /b /a/x/t")))
	var e *fault.Error
	if !errors.As(err, &e) || e.Code != "policy_invalid" || !strings.Contains(e.Error(), "circles") {
		t.Errorf("got %v", err)
	}
}

func TestBelowHiddenFile(t *testing.T) {
	tree := roottest.Host(t, "f /etc/shadow", "d /b")
	r := request(tree, roottest.Rules(t, "base host", "bind /b /etc/shadow/x"))
	r.User.Privileged = true
	if _, err := Compile(r); err == nil || !strings.Contains(err.Error(), "hidden") {
		t.Errorf("got %v", err)
	}
}

func TestPolicyReplacesTheBase(t *testing.T) {
	tree := roottest.Host(t, "f /usr/bin/env", "f /etc/ssl/certs/ca.pem", "f /my/etc/ssl/certs/mine.pem", "f /my/usr/tool", "l /my/etc/ld.so.cache /usr/x")
	for _, c := range []struct {
		rules, want []string
	}{
		{[]string{"base system", "tmpfs /etc"}, []string{"ro /usr/", "tmpfs /etc/", "generated"}},
		{[]string{"base system", "bind /my/etc /etc"}, []string{"ro /etc/ from /my/etc", "ro /usr/"}},
		{[]string{"base host", "bind /my/usr /usr"}, []string{"ro /etc/", "ro /my/", "ro /usr/ from /my/usr"}},
	} {
		v := compileOK(t, tree, c.rules...)
		checkView(t, tree, v)
		got := slices.DeleteFunc(roottest.Mounts(v), func(m string) bool { return strings.HasPrefix(m, "generated") })
		want := slices.DeleteFunc(slices.Clone(c.want), func(m string) bool { return m == "generated" })
		slices.Sort(got)
		slices.Sort(want)
		roottest.Same(t, strings.Join(c.rules, ", "), got, want)
	}
}

func TestHomeAndTmp(t *testing.T) {
	tree := roottest.Host(t, "f /home/u/f", "f /srv/home/x", "d /var/tmp/x", "l /var/scratch tmp")
	for _, c := range []struct {
		home  string
		rules []string
		path  string
		kind  rootfs.PlaceKind
	}{
		{"/home/u", nil, "/home/u", rootfs.PlaceTmpfs},
		{"/home/u", []string{"write /home/u"}, "/home/u", rootfs.PlaceHost},
		{"/home/u", []string{"read /home"}, "/home/u", rootfs.PlaceHost},
		{"/home/u", []string{"read /home/u/f"}, "/home/u", rootfs.PlaceTmpfs},
		{"/tmp/h", nil, "/tmp/h", rootfs.PlaceTmpfs},
		{"/srv/home", []string{"base host"}, "/srv/home", rootfs.PlaceTmpfs},
		{"/srv/gone", []string{"base host"}, "/srv", rootfs.PlaceHost},
		{"/home/u", []string{"base host"}, "/var/tmp", rootfs.PlaceTmpfs},
		{"/home/u", []string{"base host"}, "/var/scratch", rootfs.PlaceTmpfs},
		{"/home/u", []string{"read /var/tmp/x"}, "/var/tmp/x", rootfs.PlaceHost},
		{"/home/u", []string{"read /var"}, "/var/tmp", rootfs.PlaceHost},
		{"/home/u", nil, "/var/tmp", rootfs.PlaceTmpfs},
	} {
		r := request(tree, roottest.Rules(t, c.rules...))
		r.User.Home = c.home
		v, err := Compile(r)
		if err != nil {
			t.Errorf("home %s, %q: %v", c.home, c.rules, err)
			continue
		}
		checkView(t, tree, v)
		if spot, err := v.Lookup(tree, c.path); err != nil || spot.Kind != c.kind {
			t.Errorf("home %s, %q: %s is %+v, %v", c.home, c.rules, c.path, spot, err)
		}
		for _, m := range v.Mounts {
			if m.Target == c.home && m.Kind == rootfs.MountTmpfs && (m.Mode != 0o700 || !m.Owned) {
				t.Errorf("home %s: %+v", c.home, m)
			}
			if m.Target == "/tmp" && (m.Mode != 0o1777 || m.Size != 1<<30 || m.Inodes != 262144) {
				t.Errorf("/tmp: %+v", m)
			}
		}
	}
}
