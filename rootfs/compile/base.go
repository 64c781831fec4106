package compile

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
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

// hiddenTop are the top-level directories that base "host" never shows, and why.
var hiddenTop = map[string]string{ //nolint:gochecknoglobals // a table
	"home": "it has the homes of users", "root": "it is the home of root", "srv": "it has the data of services", "mnt": foreign, "media": foreign,
	"run": "it is a run directory: sockets and secrets of what runs", "tmp": "the sandbox has its own", "proc": "the sandbox has its own",
	"sys": "the sandbox has its own", "dev": "the sandbox has its own", "lost+found": "it has lost files of users", "boot": "no program needs it",
}

const foreign = "other file systems are mounted there"

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

// showBase shows a host path at the same path inside: as the same link if that stays below one of shown, else bound.
// What does not exist is left out.
func (c *compiler) showBase(host string, shown []string) {
	t, err := hostfs.Follow(c.tree, host)
	if _, redirected := c.writables.First(t.Links); err != nil || redirected {
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
		return rootfs.Invalid("", "%s: read the host's root: %w", b.From, err)
	}
	for _, name := range names {
		c.addHostTop(name)
	}
	for _, mp := range c.mountPoints {
		if c.inBase(mp) { // others are not even looked at: a dead network mount would hang
			c.conceal(mp, foreign)
		}
	}
	c.hideHomes()
	if c.User.Privileged {
		for _, p := range rootOnly {
			t, err := hostfs.Follow(c.tree, p)
			if _, redirected := c.writables.First(t.Links); err == nil && !redirected {
				c.hide(t.Real, classGuard)
				c.hidden = append(c.hidden, rootfs.LeftOut{Path: t.Real, Why: "root alone may read it"})
			}
		}
	}
	return nil
}

// conceal hides a part of the base, and notes why.
func (c *compiler) conceal(host, why string) {
	c.hide(host, classHide)
	c.hidden = append(c.hidden, rootfs.LeftOut{Path: host, Why: why})
}

// hideOwned hides what belongs to users in a top-level directory that the base shows, such as /data/USER.
func (c *compiler) hideOwned(dir string) {
	entries, err := hostfs.ListDir(c.Tree, dir, true)
	if err != nil {
		return // the program cannot list it either
	}
	for _, e := range entries {
		if p := pathname.Join(dir, e.Name); e.UID != 0 && !slices.Contains(c.mountPoints, p) {
			c.conceal(p, ownedBy(e.UID))
		}
	}
}

func ownedBy(uid int) string { return fmt.Sprintf("it belongs to user %d", uid) }

// hideHomes hides homes of users that lie elsewhere than in /home. Many accounts of the system have a directory of root's for a home.
func (c *compiler) hideHomes() {
	data, err := c.tree.ReadFile("/etc/passwd")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		const home = 5
		if len(fields) <= home || !pathname.Clean(fields[home]) || !c.inBase(fields[home]) {
			continue
		}
		if t, err := hostfs.Follow(c.tree, fields[home]); err == nil && t.Info.UID != 0 && c.inBase(t.Real) {
			c.conceal(t.Real, "it is the home of user "+strconv.Itoa(t.Info.UID))
		}
	}
}

func (c *compiler) addHostTop(name string) {
	p := "/" + name
	why, hidden := hiddenTop[name]
	info, err := c.tree.Lstat(p)
	if err != nil {
		return
	}
	if info.Mode&fs.ModeSymlink != 0 {
		c.copyLink(p, p)
		if t, err := hostfs.Follow(c.tree, p); hidden && err == nil && t.Real != "/" {
			c.hide(t.Real, classGuard) // /home may be a link to /var/home
			c.hidden = append(c.hidden, rootfs.LeftOut{Path: t.Real, Why: why})
		}
		return
	}
	switch {
	case !info.Mode.IsDir():
		return
	case hidden:
	case info.UID != 0:
		why = ownedBy(info.UID)
	case slices.Contains(c.mountPoints, p):
		why = foreign
	default:
		c.showTop(p, p)
		c.hideOwned(p)
		return
	}
	c.hidden = append(c.hidden, rootfs.LeftOut{Path: p, Why: why})
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
