package compile

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// EtcShown are the files of the host's /etc that base "system" shows beside the data of installed programs: what libraries and shells need
// to find certificates, other libraries, time zones, services and themselves. No secret (/etc/ssl/private, shadow, ssh)
// or names of the host's users. Patterns are path.Match's.
var EtcShown = []string{ //nolint:gochecknoglobals // a table
	// programs and libraries
	"alternatives", "ld.so.cache", "java-*", "ImageMagick-*", "magic", "magic.mime", "fonts",
	// shells, line editing, terminals, paper, manual pages
	"bash.bashrc", "inputrc", "shells", "DIR_COLORS", "papersize", "manpath.config", "mke2fs.conf", "login.defs",
	// certificates
	"ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "pki/ca-trust",
	// time, names, kinds
	"localtime", "timezone", "locale.alias", "os-release", "debian_version", "services", "protocols", "host.conf",
	"gai.conf", "mime.types", "mailcap", "rpc", "networks", "ethertypes", "netconfig", "bindresvport.blacklist",
}

func (c *compiler) addEtc() {
	c.addEntry(rootfs.Entry{Path: "/etc", Kind: rootfs.EntryDir, Mode: 0o755})
	names, err := c.tree.ReadDir("/etc")
	if err != nil {
		return // a host without /etc has nothing to show of it
	}
	for _, pattern := range EtcShown {
		if !strings.Contains(pattern, "*") {
			c.showBase("/etc/"+pattern, []string{"/usr"})
			continue
		}
		for _, name := range names {
			if ok, _ := path.Match(pattern, name); ok {
				c.showBase("/etc/"+name, []string{"/usr"})
			}
		}
	}
}

// copySmall replaces the base's binds of files in /etc by copies in the sandbox's own root: a mount costs a start ten
// times what a small file does, and every exec copies all mounts. What is denied, granted or secret has been settled.
func (c *compiler) copySmall(v *rootfs.View) {
	copied := map[string]rootfs.Entry{}
	v.Mounts = slices.DeleteFunc(v.Mounts, func(m rootfs.Mount) bool {
		if m.Kind != rootfs.MountBind || m.Dir || m.Source == "" || c.classes[m.Target] != classBase || !pathname.Below(m.Target, "/etc") {
			return false
		}
		const everybody = 0o004
		info, err := c.tree.Lstat(m.Source)
		if err != nil || c.User.Apart && info.Mode&everybody == 0 {
			return false // a copy would show it to the program
		}
		data, err := c.Tree.ReadFile(m.Source)
		if err != nil {
			return false
		}
		copied[m.Target] = rootfs.Entry{Content: string(data), Modified: info.Modified}
		return true
	})
	for i, e := range v.Entries {
		if from, ok := copied[e.Path]; ok && e.Kind == rootfs.EntryFile {
			v.Entries[i].Content, v.Entries[i].Modified, v.Entries[i].Mode = from.Content, from.Modified, 0o444
			delete(copied, e.Path)
		}
	}
}

// generated is a file of /etc that describes the sandbox, not the host.
type generated struct {
	name, content string
	ownOnly       bool // not over a file that a base brings
	closed        bool // nobody can open it
}

func (g *generated) entry(p string) rootfs.Entry {
	e := rootfs.Entry{Path: p, Kind: rootfs.EntryFile, Mode: 0o644, Content: g.content}
	if g.closed {
		e.Mode = 0
	}
	return e
}

func (c *compiler) generated() []generated {
	return []generated{
		{name: "passwd", content: passwd(c.User)},
		{name: "group", content: group(c.User)},
		{name: "hosts", content: fmt.Sprintf("127.0.0.1\tlocalhost %s\n::1\tlocalhost ip6-localhost ip6-loopback\n", c.Hostname)},
		{name: "hostname", content: c.Hostname + "\n"},
		{name: "resolv.conf", content: c.ResolvConf},
		// The C library answers a user without rights that it may not know, not that there is no such file.
		{name: "shadow", ownOnly: true, closed: true},
		{name: "gshadow", ownOnly: true, closed: true},
		{name: "nsswitch.conf", content: "passwd: files\ngroup: files\nhosts: files dns\n", ownOnly: true},
	}
}

// addGenerated puts the generated files where their names lead in the view: into the sandbox's own root, or over a file
// that a bind shows. A file that the policy grants by name stays.
func (c *compiler) addGenerated() error {
	for _, g := range c.generated() {
		spot, links, err := c.index.Trace("/etc/" + g.name)
		if _, redirects := c.writables.First(c.index.OnHost(links)); redirects {
			continue // a program chose the path
		}
		if spot.Path == "" || pathname.KernelPlace(spot.Path) != "" || err == nil && spot.Dir {
			continue
		}
		if spot.Kind == rootfs.PlaceRoot {
			c.index.MakeDirs(pathname.Parent(spot.Path))
			c.index.Entries[spot.Path] = g.entry(spot.Path)
			continue
		}
		byName := c.index.Mounts[spot.Path] != nil && c.classes[spot.Path] >= classRead
		missing := err != nil && spot.Kind != rootfs.PlaceTmpfs
		if g.ownOnly || byName || missing {
			continue
		}
		c.index.Add(&rootfs.Mount{Kind: rootfs.MountBind, Target: spot.Path, Content: g.content, From: rootfs.FromDefault})
		c.classes[spot.Path] = classDefault
	}
	return nil
}

// passwd lists the program's user, and the two that tools expect everywhere.
func passwd(u Identity) string {
	lines := fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", field(u.Name), u.UID, u.GID, field(u.Home))
	if u.UID != 0 && u.Name != "root" {
		lines += "root:x:0:0:root:/root:/bin/sh\n"
	}
	if u.UID != nobody && u.Name != "nobody" {
		lines += fmt.Sprintf("nobody:x:%d:%d:nobody:/nonexistent:/usr/sbin/nologin\n", nobody, nobody)
	}
	return lines
}

func group(u Identity) string {
	lines := fmt.Sprintf("%s:x:%d:\n", field(u.Group), u.GID)
	if u.GID != 0 && u.Group != "root" {
		lines += "root:x:0:\n"
	}
	if u.GID != nobody && u.Group != "nogroup" {
		lines += fmt.Sprintf("nogroup:x:%d:\n", nobody)
	}
	return lines
}

// nobody is the number that the kernel shows for ids that the sandbox's user namespace does not map.
const nobody = 65534

// field keeps a value from ending its field or line of /etc/passwd.
func field(s string) string {
	return strings.NewReplacer(":", "_", "\n", "_").Replace(s)
}

// IsGenerated reports whether a path inside is a file that each sandbox has of its own.
func IsGenerated(p string) bool {
	c := &compiler{}
	return slices.ContainsFunc(c.generated(), func(g generated) bool { return "/etc/"+g.name == p })
}
