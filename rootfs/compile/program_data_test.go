package compile

import (
	"slices"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
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
	tree := roottest.Host(t, installed...)
	tree.Content = true
	v := compileOK(t, tree, "base system")
	checkView(t, tree, v)
	roottest.Same(t, "mounts", roottest.Mounts(v), []string{"ro /usr/", "ro /var/lib/big/", "ro /var/lib/dpkg/info/"})
	roottest.Same(t, "entries", roottest.Entries(v, "/var"), []string{
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

func TestProgramDataWithPolicies(t *testing.T) {
	tree := roottest.Host(t, append(slices.Clone(installed), "f /w/a")...)
	tree.Content = true
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
		if spot, err := v.Lookup(tree, "/var/lib/ghc/package.cache"); c.rule[:4] == "deny" && (err != nil || spot.Kind != rootfs.PlaceMask) {
			t.Errorf("%s: %+v, %v", c.name, spot, err)
		}
	}
}

// TestCopiesKeepTimes: what has a copy in the sandbox's own root has there the time that it has on the host, and nothing else has one.
func TestCopiesKeepTimes(t *testing.T) {
	tree := roottest.Host(t, append(slices.Clone(installed), "f /etc/services", "f /etc/ssl/openssl.cnf")...)
	tree.Content = true
	var copies []string
	for _, e := range compileOK(t, tree, "base system").Entries {
		if e.Modified == 0 {
			continue
		}
		copies = append(copies, e.Path)
		if e.Modified != modified(t, tree, e.Path) {
			t.Errorf("%s has the time %d", e.Path, e.Modified)
		}
	}
	roottest.Same(t, "copies", copies, []string{
		"/etc/services", "/etc/ssl/openssl.cnf", "/etc/texmf", "/etc/texmf/texmf.cnf", "/etc/texmf/web2c", "/etc/texmf/web2c/a",
		"/var/cache/texmf", "/var/cache/texmf/x", "/var/lib/dpkg/status", "/var/lib/dpkg/updates", "/var/lib/ghc", "/var/lib/ghc/package.cache",
		"/var/lib/texmf", "/var/lib/texmf/ls-R", "/var/lib/texmf/web2c",
	})
}

func modified(t *testing.T, tree *roottest.Tree, p string) int64 {
	t.Helper()
	info, err := tree.Lstat(p)
	if err != nil || info.Modified == 0 {
		t.Fatal(p, info, err)
	}
	return info.Modified
}
