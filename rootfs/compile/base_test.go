package compile

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

// debian is a host with a merged /usr, a container's mounts in /etc, and things that nobody should see.
var debian = []string{
	"f /usr/bin/python3", "f /usr/lib/x86_64/libc.so", "f /usr/share/zoneinfo/UTC", "f /usr/lib/os-release", "f /usr/lib64/ld.so",
	"f /usr/sbin/init", "l /bin usr/bin", "l /sbin usr/sbin", "l /lib usr/lib", "l /lib64 usr/lib64",
	"f /etc/passwd", "f /etc/group", "f /etc/hosts", "f /etc/hostname", "f /etc/resolv.conf", "f /etc/nsswitch.conf", "f /etc/shadow",
	"f /etc/ssh/key", "f /etc/ssl/private/k", "f /etc/ssl/certs/ca.pem", "f /etc/ssl/openssl.cnf", "f /etc/ld.so.cache",
	"l /etc/localtime /usr/share/zoneinfo/UTC", "l /etc/os-release ../usr/lib/os-release", "l /etc/timezone /usr/gone",
	"f /etc/java-17/conf", "f /etc/java", "l /etc/services /srv/services", "f /srv/services", "f /etc/alternatives/vi",
	"f /sys/devices/system/cpu/online", "f /proc/version", "f /dev/null", "f /home/u/.ssh/id", "f /root/x", "f /tmp/x", "f /run/x",
	"f /var/lib/db", "d /var/tmp", "l /var/run /run", "d /boot/x", "d /mnt/disk", "d /opt", "f /data/x", "f /vagrant/x", "f /swapfile",
	"m /usr/local/nfs", "m /data", "m /etc/hosts",
}

func debianHost(t testing.TB, more ...string) *roottest.Tree {
	t.Helper()
	tree := roottest.Host(t, append(slices.Clone(debian), more...)...)
	tree.Nodes["/vagrant"].UID = 1000
	tree.Nodes["/etc/hosts"].Mode = 0o644
	return tree
}

func TestBaseSystem(t *testing.T) {
	tree := debianHost(t)
	v := compileOK(t, tree, "base system")
	checkView(t, tree, v)
	roottest.Same(t, "mounts", roottest.Mounts(v), []string{
		"ro /usr/", "ro /etc/alternatives/", "ro /etc/java-17/", "ro /etc/ld.so.cache", "ro /etc/services from /srv/services",
		"ro /etc/ssl/certs/", "ro /etc/ssl/openssl.cnf", "ro /sys/devices/system/cpu/",
	})
	roottest.Same(t, "etc", roottest.Entries(v, "/etc"), []string{
		"/etc/", "/etc/alternatives/", "/etc/group", "/etc/gshadow", "/etc/hostname", "/etc/hosts", "/etc/java-17/", "/etc/ld.so.cache",
		"/etc/localtime -> /usr/share/zoneinfo/UTC", "/etc/nsswitch.conf", "/etc/os-release -> ../usr/lib/os-release", "/etc/passwd",
		"/etc/resolv.conf", "/etc/services", "/etc/shadow", "/etc/ssl/", "/etc/ssl/certs/", "/etc/ssl/openssl.cnf",
	})
	for p, want := range map[string]string{
		"/bin": "/bin -> usr/bin", "/lib64": "/lib64 -> usr/lib64", "/var": "/var/ /var/tmp -> /tmp", "/run": "/run/", "/proc": "/proc/",
		"/dev": "/dev/", "/tmp": "/tmp/", "/home": "/home/ /home/u/", "/root": "",
	} {
		if got := strings.Join(roottest.Entries(v, p), " "); got != want {
			t.Errorf("entries of %s: %q, want %q", p, got, want)
		}
	}
	if spot, err := v.Lookup(tree, "/bin/python3"); err != nil || spot.Host != "/usr/bin/python3" {
		t.Errorf("/bin/python3 is %+v, %v", spot, err)
	}
	split := roottest.Host(t, "f /usr/bin/env", "f /bin/sh", "f /lib/libc.so", "l /lib64 /opt/libs", "f /opt/libs/ld.so")
	roottest.Same(t, "split /usr", roottest.Mounts(compileOK(t, split, "base system")), []string{"ro /bin/", "ro /lib/", "ro /lib64/ from /opt/libs", "ro /usr/"})
}

func TestBaseSystemWithGrants(t *testing.T) {
	for _, c := range []viewCase{
		{name: "a grant below the base", rules: []string{"base system", "read /usr/bin/python3"}, want: nil},
		{name: "through a link of the base", rules: []string{"base system", "write /lib/x86_64"}, want: []string{"rw /usr/lib/x86_64/"}},
		{name: "bind through a link of the base", rules: []string{"base system", "bind /data /bin/python3"}, want: nil},
		{name: "deny in the base", rules: []string{"base system", "deny /bin/python3"}, want: []string{"mask /usr/bin/python3"}},
		{name: "deny of the base", rules: []string{"base system", "deny /etc/ssl"}, want: []string{"mask /etc/ssl/certs/", "mask /etc/ssl/openssl.cnf"}},
		{name: "grant of /var/tmp", rules: []string{"base system", "read /var/tmp"}, want: []string{"ro /var/tmp/"}},
		{
			name: "grant of /etc", rules: []string{"base system", "read /etc"},
			want: []string{
				"ro /etc/", "generated /etc/group", "generated /etc/hostname", "generated /etc/hosts",
				"generated /etc/passwd", "generated /etc/resolv.conf",
			},
		},
		{name: "grant of a generated file", rules: []string{"base system", "read /etc/hosts"}, want: []string{"ro /etc/hosts"}},
	} {
		tree := debianHost(t)
		v, err := Compile(request(tree, roottest.Rules(t, c.rules...)))
		if c.name == "bind through a link of the base" {
			if err == nil {
				t.Errorf("%s: a directory over a file", c.name)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		checkView(t, tree, v)
		base := roottest.Mounts(compileOK(t, tree, "base system"))
		if c.name == "deny of the base" || c.name == "grant of /etc" {
			base = []string{"ro /usr/", "ro /etc/alternatives/", "ro /etc/java-17/", "ro /etc/ld.so.cache", "ro /etc/services from /srv/services", "ro /sys/devices/system/cpu/", "ro /etc/ssl/certs/", "ro /etc/ssl/openssl.cnf"}
		}
		got := slices.DeleteFunc(roottest.Mounts(v), func(m string) bool { return slices.Contains(base, m) })
		roottest.Same(t, c.name, got, c.want)
	}
}

func TestBaseHost(t *testing.T) {
	tree := debianHost(t)
	r := request(tree, roottest.Rules(t, "base host", "read /data", "read /usr/local/nfs"))
	v, err := Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	checkView(t, tree, v)
	roottest.Same(t, "mounts", roottest.Mounts(v), []string{
		"ro /etc/", "ro /srv/", "ro /usr/", "ro /var/", "ro /data/", "generated /etc/group", "generated /etc/hostname",
		"generated /etc/hosts", "generated /etc/passwd", "generated /etc/resolv.conf", "ro /usr/local/nfs/", "ro /sys/devices/system/cpu/",
	})
	roottest.Same(t, "entries", roottest.Entries(v, "/"), []string{
		"/bin -> usr/bin", "/data/", "/dev/", "/etc/", "/home/", "/home/u/", "/lib -> usr/lib", "/lib64 -> usr/lib64", "/opt/",
		"/proc/", "/run/", "/sbin -> usr/sbin", "/srv/", "/sys/", "/sys/devices/", "/sys/devices/system/", "/sys/devices/system/cpu/",
		"/tmp/", "/usr/", "/var/",
	})
	r.User.Privileged = true
	r.Policy = roottest.Rules(t, "base host")
	if v, err = Compile(r); err != nil {
		t.Fatal(err)
	}
	masks := slices.DeleteFunc(roottest.Mounts(v), func(m string) bool { return !strings.HasPrefix(m, "mask") })
	roottest.Same(t, "masks as root", masks, []string{"mask /etc/shadow", "mask /etc/ssh/", "mask /usr/local/nfs/", "mask /etc/ssl/private/"})
	r.Policy = roottest.Rules(t, "base host", "read /usr/local/nfs/deep", "read /etc/ssh")
	tree.Add("/usr/local/nfs/deep/f", 0o644)
	if v, err = Compile(r); err != nil {
		t.Fatal(err)
	}
	checkView(t, tree, v)
	if got := roottest.Mounts(v); !slices.Contains(got, "tmpfs /usr/local/nfs/") || !slices.Contains(got, "ro /usr/local/nfs/deep/") ||
		len(v.Inside("/etc/ssh/key")) != 1 || slices.Contains(got, "mask /etc/ssh/") {
		t.Errorf("grants below what the base hides: %q", got)
	}
}

func TestBaseHostLinkedHome(t *testing.T) {
	tree := roottest.Host(t, "l /home var/home", "f /var/home/u/.ssh/id", "f /var/lib/x", "f /var/home/u/p/f")
	v := compileOK(t, tree, "base host")
	roottest.Same(t, "mounts", roottest.Mounts(v), []string{"ro /var/", "tmpfs /var/home/", "tmpfs /var/home/u/"})
	v = compileOK(t, tree, "base host", "write /home/u/p")
	checkView(t, tree, v)
	roottest.Same(t, "mounts", roottest.Mounts(v), []string{"ro /var/", "tmpfs /var/home/", "tmpfs /var/home/u/", "rw /var/home/u/p/"})
}

func TestBaseRootfs(t *testing.T) {
	tree := roottest.Host(t, "f /img/bin/sh", "l /img/lib64 bin", "f /img/etc/passwd", "l /img/etc/resolv.conf ../run/resolv.conf",
		"d /img/srv", "f /img/home/ubuntu/f", "f /img/tmp/x", "f /img/proc/x", "f /img/init", "f /p/f", "l /image img")
	v := compileOK(t, tree, "base rootfs /image", "write /p")
	checkView(t, tree, v)
	roottest.Same(t, "mounts", roottest.Mounts(v), []string{"ro /bin/ from /img/bin", "ro /etc/ from /img/etc", "rw /p/", "generated /etc/passwd"})
	roottest.Same(t, "entries", roottest.Entries(v, "/"), []string{
		"/bin/", "/dev/", "/etc/", "/home/", "/home/u/", "/lib64 -> bin", "/p/", "/proc/", "/run/", "/run/resolv.conf", "/srv/", "/sys/",
		"/tmp/", "/var/", "/var/tmp -> /tmp",
	})
	if spot, err := v.Lookup(tree, "/lib64/sh"); err != nil || spot.Host != "/img/bin/sh" {
		t.Errorf("/lib64/sh is %+v, %v", spot, err)
	}
	if _, err := Compile(request(tree, roottest.Rules(t, "base rootfs /img", "bind /p /bin/new"))); err == nil {
		t.Error("a target that only the host's root would have")
	}
	// A link of the host is none in another root.
	tree = roottest.Host(t, "l /lib usr/lib", "f /usr/lib/x", "f /img/lib/y", "f /img/usr/bin/z")
	if _, err := Compile(request(tree, roottest.Rules(t, "base rootfs /img", "read /lib/x"))); err == nil {
		t.Error("/usr/lib/x cannot be made in the image")
	}
}

func TestResolvConfLink(t *testing.T) { // fs08
	for _, stub := range []string{"f /run/resolve/stub.conf", "d /run"} {
		tree := roottest.Host(t, "f /etc/passwd", "f /usr/bin/env", "l /etc/resolv.conf ../run/resolve/stub.conf", stub)
		for _, base := range []string{"system", "host", "none"} {
			v := compileOK(t, tree, "base "+base)
			spot, err := v.Lookup(tree, "/etc/resolv.conf")
			if err != nil || spot.Kind != rootfs.PlaceRoot {
				t.Errorf("%s, %s: %+v, %v", base, stub, spot, err)
			}
			for _, e := range v.Entries {
				if e.Path == spot.Path && e.Content != "nameserver 127.0.0.1\n" {
					t.Errorf("%s, %s: content %q", base, stub, e.Content)
				}
			}
		}
	}
	tree := roottest.Host(t, "f /etc/passwd", "l /etc/resolv.conf /tmp/stub.conf")
	if got := roottest.Mounts(compileOK(t, tree, "base host")); !slices.Contains(got, "generated /tmp/stub.conf") {
		t.Errorf("a link into the tmpfs: %q", got)
	}
}

func TestGeneratedFiles(t *testing.T) { // us01
	v := compileOK(t, roottest.Host(t), "base none")
	got := map[string]string{}
	for _, e := range v.Entries {
		got[e.Path] = e.Content
		want := fs.FileMode(0o644)
		if strings.HasSuffix(e.Path, "shadow") { // as it is to a user outside
			want = 0
		}
		if e.Kind == rootfs.EntryFile && e.Mode != want {
			t.Errorf("%s has mode %v", e.Path, e.Mode)
		}
	}
	for p, want := range map[string]string{
		"/etc/passwd":        "u:x:1000:1000::/home/u:/bin/sh\nroot:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"/etc/group":         "g:x:1000:\nroot:x:0:\nnogroup:x:65534:\n",
		"/etc/hosts":         "127.0.0.1\tlocalhost box\n::1\tlocalhost ip6-localhost ip6-loopback\n",
		"/etc/hostname":      "box\n",
		"/etc/resolv.conf":   "nameserver 127.0.0.1\n",
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
	} {
		if got[p] != want {
			t.Errorf("%s:\n got  %q\n want %q", p, got[p], want)
		}
	}
	if p := passwd(Identity{UID: 0, GID: 0, Name: "root", Home: "/ro:ot\nx"}); strings.Count(p, "\n") != 2 || !strings.HasPrefix(p, "root:x:0:0::/ro_ot_x:") {
		t.Errorf("passwd of root: %q", p)
	}
	for _, home := range []string{"", "/", "/proc/x", "rel"} {
		r := request(roottest.Host(t), roottest.Rules(t))
		r.User.Home = home
		if _, err := Compile(r); err != nil {
			t.Errorf("home %q: %v", home, err)
		}
	}
}

func TestLinksOfAnotherRoot(t *testing.T) {
	tree := roottest.Host(t, "l /lib usr/lib", "f /usr/lib/x", "f /img/lib/x", "f /img/lib/y", "f /img/usr/lib/x")
	v := compileOK(t, tree, "base rootfs /img", "read /lib/x")
	checkView(t, tree, v)
	roottest.Same(t, "the image's own file", v.Inside("/img/lib/y"), []string{"/lib/y"})
	roottest.Same(t, "the granted file", v.Inside("/usr/lib/x"), []string{"/lib/x", "/usr/lib/x"})
}

func TestGrantsShowWhatTheBaseHides(t *testing.T) {
	tree := roottest.Host(t, "f /opt/x/nfs/f", "m /opt/x/nfs", "f /opt/y", "f /etc/shadow", "f /my/etc/shadow")
	r := request(tree, roottest.Rules(t, "base host", "read /opt/x", "bind /my/etc /etc"))
	r.User.Privileged = true
	v, err := Compile(r)
	if err != nil {
		t.Fatal(err)
	}
	checkView(t, tree, v)
	roottest.Same(t, "a mount below a grant", v.Inside("/opt/x/nfs/f"), []string{"/opt/x/nfs/f"})
	roottest.Same(t, "a namesake of a hidden file", v.Inside("/my/etc/shadow"), []string{"/etc/shadow", "/my/etc/shadow"})
	r.Policy = roottest.Rules(t, "base host", "read /etc")
	if v, err = Compile(r); err != nil || len(v.Inside("/etc/shadow")) != 0 {
		t.Errorf("root's files below a grant are shown: %q, %v", v.Inside("/etc/shadow"), err)
	}
}
