package compile

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// SystemDirs are the directories of programs and libraries. On most hosts all but /usr are links into it.
var SystemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} //nolint:gochecknoglobals // a table

// sysDirs are the parts of /sys that runtimes read to count processors and to choose page sizes.
var sysDirs = []string{"/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage"} //nolint:gochecknoglobals // a table

// hiddenTop are the top-level directories that base "host" never shows: people's files, what runs, what comes and goes,
// and what the sandbox has of its own.
var hiddenTop = []string{ //nolint:gochecknoglobals // a table
	"home", "root", "proc", "sys", "dev", "tmp", "run", "mnt", "media", "lost+found", "boot",
}

// ownTop are the top-level directories that base rootfs never takes from its directory.
var ownTop = []string{"proc", "sys", "dev", "tmp", "run"} //nolint:gochecknoglobals // a table

// rootOnly are the files that modes alone protect from a plain user. A launcher that is root has its programs run as the
// owner of these, so they are hidden.
var rootOnly = []string{ //nolint:gochecknoglobals // a table
	"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssh",
	"/etc/ssl/private", "/etc/krb5.keytab", "/var/lib/docker", "/var/lib/containerd", "/var/spool/cron",
}

// addBase collects what the root shows before any grant.
func (c *compiler) addBase() error {
	switch b := c.Policy.Base; b.Kind {
	case rootfs.BaseNone:
		c.addEntry(rootfs.Entry{Path: "/etc", Kind: rootfs.EntryDir, Mode: 0o755})
		return nil
	case rootfs.BaseSystem, "":
		for _, dir := range SystemDirs {
			others := slices.DeleteFunc(slices.Clone(SystemDirs), func(d string) bool { return d == dir })
			c.showBase(dir, others)
		}
		c.addEtc()
		c.addProgramData()
	case rootfs.BaseHost:
		if err := c.addHost(b); err != nil {
			return err
		}
	case rootfs.BaseRootfs:
		if err := c.addRootfs(b); err != nil {
			return err
		}
	default:
		return rootfs.Invalid("", "%s: files.base %q is none of system, host, none and rootfs", b.From, b.Kind)
	}
	for _, dir := range sysDirs {
		if info, err := c.tree.Lstat(dir); err == nil && info.Mode.IsDir() {
			c.bindBase(dir, dir, true)
		}
	}
	return nil
}

// showBase shows a host path at its own place: as the same link if that stays below one of shown, else bound.
// What does not exist is left out.
func (c *compiler) showBase(host string, shown []string) {
	t, err := hostfs.Follow(c.tree, host)
	if _, redirected := c.hands.First(t.Links); err != nil || redirected {
		return
	}
	if text, ok := hostfs.HostLink(c.tree, host); ok && linkStays(host, text, t.Real, shown) {
		c.addEntry(rootfs.Entry{Path: host, Kind: rootfs.EntrySymlink, Content: text})
		return
	}
	c.bindBase(t.Real, host, t.Info.Mode.IsDir())
}

func linkStays(place, text, real string, shown []string) bool {
	hop := path.Clean(text)
	if !path.IsAbs(text) {
		hop = path.Join(pathname.Parent(place), text)
	}
	in := func(p string) bool {
		return slices.ContainsFunc(shown, func(dir string) bool { return pathname.Within(p, dir) })
	}
	return in(hop) && in(real)
}

func (c *compiler) bindBase(source, target string, dir bool) {
	m := rootfs.Mount{Kind: rootfs.MountBind, Source: source, Target: target, Dir: dir, From: c.baseFrom()}
	c.items = append(c.items, item{Mount: m, class: classBase, asked: target})
	c.bases[target] = true
}

// baseFrom is what Mount.From says of the base.
func (c *compiler) baseFrom() string {
	if from := c.Policy.Base.From; from != "" {
		return from
	}
	return rootfs.FromDefault
}

// inBase reports whether a bind of the base shows what is at p.
func (c *compiler) inBase(p string) bool {
	for up := range pathname.Ups(p) {
		if c.bases[up] {
			return true
		}
	}
	return false
}

// hide masks a host path where the base shows it.
func (c *compiler) hide(host string, cl class) {
	info, err := c.tree.Lstat(host)
	if err != nil {
		return // nothing there, or nothing that the launcher's user could see
	}
	m := rootfs.Mount{Kind: rootfs.MountMask, Target: host, Dir: info.Mode.IsDir(), From: c.baseFrom()}
	c.items = append(c.items, item{Mount: m, class: cl, asked: host, host: host})
}

func (c *compiler) addHost(b rootfs.Base) error {
	names, err := c.tree.ReadDir("/")
	if err != nil {
		return rootfs.Invalid("", "%s: read the host's root: %v", b.From, err)
	}
	for _, name := range names {
		c.addHostTop(name)
	}
	for _, mp := range c.mountPoints {
		if c.inBase(mp) { // others are not even looked at: a dead network mount would hang
			c.hide(mp, classHide)
		}
	}
	if c.User.Privileged {
		for _, p := range rootOnly {
			t, err := hostfs.Follow(c.tree, p)
			if _, redirected := c.hands.First(t.Links); err == nil && !redirected {
				c.hide(t.Real, classGuard)
			}
		}
	}
	return nil
}

func (c *compiler) addHostTop(name string) {
	p, hidden := "/"+name, slices.Contains(hiddenTop, name)
	info, err := c.tree.Lstat(p)
	if err != nil {
		return
	}
	if info.Mode&fs.ModeSymlink != 0 {
		c.copyLink(p, p)
		if t, err := hostfs.Follow(c.tree, p); hidden && err == nil && t.Real != "/" {
			c.hide(t.Real, classGuard) // /home may be a link to /var/home
		}
		return
	}
	if !info.Mode.IsDir() || hidden || info.UID != 0 || slices.Contains(c.mountPoints, p) {
		return
	}
	c.showTop(p, p)
}

// showTop binds a top-level directory. An empty one is made instead, so that targets can be made in it.
func (c *compiler) showTop(host, target string) {
	if names, err := hostfs.SomeNames(c.Tree, host, 1); err == nil && len(names) == 0 {
		c.addEntry(rootfs.Entry{Path: target, Kind: rootfs.EntryDir, Mode: 0o755})
		return
	}
	c.bindBase(host, target, true)
}

func (c *compiler) copyLink(host, target string) {
	if text, ok := hostfs.HostLink(c.tree, host); ok {
		c.addEntry(rootfs.Entry{Path: target, Kind: rootfs.EntrySymlink, Content: text})
	}
}

func (c *compiler) addRootfs(b rootfs.Base) error {
	g := rootfs.Grant{Path: b.Dir, From: b.From}
	t, ok, err := c.source(g, false)
	if !ok {
		return err
	}
	names, err := c.tree.ReadDir(t.Real)
	if err != nil || !t.Info.Mode.IsDir() {
		return fault.New(fault.GrantMissing, "", "%s", b.From+": "+t.Real+" is not a directory that can be read")
	}
	for _, name := range names {
		host, target := pathname.Join(t.Real, name), "/"+name
		info, err := c.tree.Lstat(host)
		switch {
		case err != nil || slices.Contains(ownTop, name):
		case name == "home" && c.homeIsMissing(t.Real):
		case info.Mode&fs.ModeSymlink != 0:
			c.copyLink(host, target)
		case info.Mode.IsDir():
			c.showTop(host, target)
		}
	}
	return nil
}

// homeIsMissing reports whether the user's home is in /home and the root file system in dir has no such directory. It
// could not be made there, so /home is the sandbox's own then.
func (c *compiler) homeIsMissing(dir string) bool {
	if !strings.HasPrefix(c.User.Home, "/home/") || !pathname.Clean(c.User.Home) {
		return false
	}
	_, err := c.tree.Lstat(pathname.Join(dir, c.User.Home[1:]))
	return err != nil
}
