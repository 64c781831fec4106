package rootfs

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Base "system" shows /usr, and programs in /usr keep a part of their read-only data elsewhere: settings in /etc, indexes that are
// built at installation in /var/lib and /var/cache. A directory there is shown if it belongs to an installed program, is not the
// state of a service, and if everything in it is data that every user of the host may read. This file has that rule.

// dataParents are the directories in which programs of /usr have directories of their name.
var dataParents = []string{"/etc", "/var/cache", "/var/lib"} //nolint:gochecknoglobals // a table

// programDirs are where an installed program has a directory of its name.
var programDirs = []string{"/usr/share/", "/usr/lib/"} //nolint:gochecknoglobals // a table

// packageData is the list of installed packages. Package managers write these files themselves, all of one mode, and there
// are too many of them to look at each.
var packageData = []string{ //nolint:gochecknoglobals // a table
	"/var/lib/dpkg/alternatives", "/var/lib/dpkg/arch", "/var/lib/dpkg/diversions", "/var/lib/dpkg/info", "/var/lib/dpkg/status",
	"/var/lib/dpkg/statoverride", "/var/lib/dpkg/updates", "/var/lib/pacman/local", "/var/lib/rpm",
}

// neverShown are names that the rule never shows: who may log in, keys, where packages come from (an address may have a password
// in it), and what identifies the host. Patterns are path.Match's. What has other modes than data for everybody is left out anyway.
var neverShown = []string{ //nolint:gochecknoglobals // a table
	"NetworkManager", "alternatives", "amazon", "apt", "cloud*", "containers", "cron*", "dbus*", "dhcp*", "dnf", "docker*", "dpkg",
	"kernel", "kubernetes", "libvirt", "mail*", "misc", "netplan", "pacman*", "pam*", "pki", "polkit*", "ppp", "private", "rpm", "samba",
	"security", "ssh*", "ssl", "sudo*", "systemd*", "udev", "wireguard", "yum*", "zypp*",
}

// keyNames and keyKinds are names, and ends of names, of files that hold keys or passwords. A directory with one is not shown.
var (
	keyNames = []string{ //nolint:gochecknoglobals // a table
		"authorized_keys", "credentials", "htpasswd", "id_dsa", "id_ecdsa", "id_ed25519", "id_rsa", "machine-id", "netrc", "passwd",
		"password", "passwords", "pgpass", "secret", "secrets", "shadow", "token", "tokens",
	}
	keyKinds = []string{".jks", ".kdbx", ".key", ".keytab", ".p12", ".pfx"} //nolint:gochecknoglobals // a table
)

// What a start looks at, at most. What is left is not shown.
const (
	maxDataTree  = 1000 // entries of one directory and all below it
	maxDataTotal = 3000 // entries of all
	maxDataDepth = 12
)

// A directory of at most so much is copied into the sandbox's own root: a mount costs a start as much as six files, and costs each exec
// something too.
const (
	maxCopyEntries = 6
	maxCopyBytes   = 32 << 10
)

// listed is an entry of a directory. Of a symbolic link Info has the kind alone.
type listed struct {
	Name string
	Info
}

// lister is a Tree that lists a directory together with what its entries are.
type lister interface {
	List(dir string, dirsOnly bool) ([]listed, error)
}

// listDir falls back on one question an entry.
func listDir(t Tree, dir string, dirsOnly bool) ([]listed, error) {
	if l, ok := t.(lister); ok {
		return l.List(dir, dirsOnly)
	}
	names, err := t.ReadDir(dir)
	entries := make([]listed, 0, len(names))
	for _, name := range names {
		info, err := t.Lstat(join(dir, name))
		if err != nil {
			return nil, err
		}
		if !dirsOnly || info.Mode.IsDir() {
			entries = append(entries, listed{name, info})
		}
	}
	return entries, err
}

// surveyor looks at directories of the host and judges whether base "system" shows them.
type surveyor struct {
	tree        Tree
	mountPoints []string
	left        int // entries that may still be looked at
	services    map[string]bool
}

func newSurveyor(t Tree) *surveyor {
	s := &surveyor{tree: t, left: maxDataTotal}
	for _, m := range t.Mounts() {
		if kernelPlace(m.Target) == "" {
			s.mountPoints = append(s.mountPoints, m.Target)
		}
	}
	return s
}

// datum is a directory or file that the rule shows.
type datum struct {
	path  string
	dir   bool
	found []listed // all that is in the directory, by path, up to one more than is copied
	copy  []Entry  // it and all that is in it, where that is copied
}

// surveyed is a Tree that has looked for all data.
type surveyed interface{ programData() []datum }

// programData finds all that the rule shows. It takes from the tree what is there now: nothing is kept from one start to the next.
func programData(t Tree) []datum {
	s := newSurveyor(t)
	var list []datum
	for _, dir := range dataParents {
		if !s.rootsOwn(dir) {
			continue
		}
		dirs, _ := listDir(s.tree, dir, true) // what cannot be listed has nothing to show
		slices.SortFunc(dirs, func(a, b listed) int { return strings.Compare(a.Name, b.Name) })
		for _, e := range dirs {
			if d, why := s.judge(join(dir, e.Name), e.Info); why == "" {
				d.copy = s.copied(d, append([]listed{{d.path, e.Info}}, d.found...)...)
				list = append(list, d)
			}
		}
	}
	for _, p := range packageData {
		if d, ok := s.packages(p); ok {
			list = append(list, d)
		}
	}
	return list
}

// packages is a part of the list of packages, if it is there and root's.
func (s *surveyor) packages(p string) (d datum, ok bool) {
	info, err := s.tree.Lstat(p)
	if err != nil || info.Mode&fs.ModeSymlink != 0 || openToAll(info) != "" || !s.rootsOwn(parent(p)) {
		return d, false
	}
	d = datum{path: p, dir: info.Mode.IsDir()}
	in, err := SomeNames(s.tree, p, 1)
	switch {
	case d.dir && err == nil && len(in) == 0:
		d.copy = []Entry{{Path: p, Kind: EntryDir, Mode: 0o755, Modified: info.Modified}}
	case !d.dir && info.Size <= maxCopyBytes:
		d.copy = s.copied(d, listed{p, info})
	}
	return d, true
}

// copied makes entries of what is small enough.
func (s *surveyor) copied(d datum, files ...listed) []Entry {
	bytes := int64(0)
	for _, f := range files {
		if f.Mode.IsRegular() {
			bytes += f.Size
		}
	}
	if len(d.found) > maxCopyEntries || bytes > maxCopyBytes {
		return nil
	}
	var entries []Entry
	for _, f := range files {
		e := Entry{Path: f.Name, Kind: EntryDir, Mode: 0o755, Modified: f.Modified}
		var err error
		switch {
		case f.Mode&fs.ModeSymlink != 0:
			e.Kind, e.Mode, e.Modified = EntrySymlink, 0, 0
			e.Content, err = s.tree.Readlink(f.Name)
		case !f.Mode.IsDir():
			var data []byte
			data, err = s.tree.ReadFile(f.Name)
			e.Kind, e.Mode, e.Content = EntryFile, f.Mode&0o555, string(data)
		}
		if err != nil {
			return nil
		}
		entries = append(entries, e)
	}
	return entries
}

// openToAll says why a file or directory is not root's data for everybody, or "". The group root counts as root.
func openToAll(info Info) string {
	const others, group, set = 0o002, 0o020, fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
	read := fs.FileMode(0o004)
	switch {
	case info.Mode&fs.ModeSymlink != 0:
		return ""
	case info.Mode.IsDir():
		read |= 0o001
	case !info.Mode.IsRegular():
		return "is neither a file nor a directory"
	}
	switch {
	case info.UID != 0:
		return fmt.Sprintf("belongs to uid %d, not to root", info.UID)
	case info.Mode&others != 0 || info.Mode&group != 0 && info.GID != 0:
		return "can be written by others than root"
	case info.Mode&read != read:
		return "cannot be read by everybody"
	case info.Mode.IsRegular() && info.Mode&set != 0:
		return "has a special mode"
	}
	return ""
}

// holdsKey says whether files of this name hold keys or passwords.
func holdsKey(name string) bool {
	name = strings.ToLower(strings.TrimPrefix(name, "."))
	return slices.Contains(keyNames, name) || slices.Contains(keyKinds, path.Ext(name))
}

// judge says why the directory p is not shown, or "" if it is.
func (s *surveyor) judge(p string, info Info) (datum, string) {
	name, d := path.Base(p), datum{path: p, dir: true}
	program, parts := strings.CutSuffix(name, ".d") // packages and administrators add files to it
	switch {
	case !info.Mode.IsDir():
		return d, shown(p) + " is not a directory"
	case openToAll(info) != "":
		return d, shown(p) + " " + openToAll(info)
	case s.program(program) == "":
		return d, "no program of that name is installed: neither /usr/share/" + shown(program) + " nor /usr/lib/" + shown(program) + " is there"
	case parts && !s.isCommand(program):
		return d, shown(name) + " is a directory to which other packages add, and /usr/bin/" + shown(program) + " is not there"
	case slices.ContainsFunc(neverShown, func(pattern string) bool { ok, _ := path.Match(pattern, program); return ok }):
		return d, shown(program) + " is one of the names of logins, keys, package sources and host identity, which are never shown"
	case s.isService(program):
		return d, shown(name) + " is a service, and " + shown(p) + " its own"
	case slices.ContainsFunc(s.mountPoints, func(mp string) bool { return within(mp, p) }):
		return d, shown(p) + " has a mount of the host's in it"
	}
	left := min(maxDataTree, s.left)
	before := left
	why := s.survey(&d, p, maxDataDepth, &left)
	s.left -= before - left
	return d, why
}

// program is the directory in /usr of the installed program of that name, or "". /etc/xdg is for every program that follows the XDG
// base directory specification.
func (s *surveyor) program(name string) string {
	if name == "xdg" {
		return "/etc/xdg"
	}
	for _, dir := range programDirs {
		if info, err := s.tree.Lstat(dir + name); err == nil && info.Mode.IsDir() {
			return dir + name
		}
	}
	return ""
}

// isCommand reports whether a user's program of that name is installed: /etc/chromium.d is a part of Chromium's settings, but /etc/init.d and
// /etc/grub.d are the host's.
func (s *surveyor) isCommand(name string) bool {
	_, err := s.tree.Lstat("/usr/bin/" + name)
	return err == nil
}

// isService reports whether the host has a service of that name.
func (s *surveyor) isService(name string) bool {
	if s.services == nil {
		s.services = map[string]bool{}
		const all = 1 << 16
		units, _ := SomeNames(s.tree, "/usr/lib/systemd/system", all) // a host without one has no such services
		for _, unit := range units {
			if n, ok := strings.CutSuffix(unit, ".service"); ok {
				s.services[strings.TrimSuffix(n, "@")] = true
			}
		}
		scripts, _ := SomeNames(s.tree, "/etc/init.d", all)
		for _, script := range scripts {
			s.services[script] = true
		}
	}
	lower := strings.ToLower(name)
	return s.services[name] || s.services[lower] || s.services[lower+"d"]
}

// survey looks at everything below a directory.
func (s *surveyor) survey(d *datum, dir string, depth int, left *int) string {
	entries, err := listDir(s.tree, dir, false)
	if err != nil {
		return shown(dir) + " cannot be listed"
	}
	if *left -= len(entries); *left < 0 || depth == 0 {
		return shown(dir) + " has more in it than is looked at for each sandbox"
	}
	for _, e := range entries {
		p := join(dir, e.Name)
		why := openToAll(e.Info)
		switch {
		case why != "":
			why = shown(p) + " " + why
		case holdsKey(e.Name):
			why = shown(p) + " has the name of a file with keys or passwords"
		case e.Mode.IsDir():
			d.add(p, e.Info)
			why = s.survey(d, p, depth-1, left)
		default:
			d.add(p, e.Info)
		}
		if why != "" {
			return why
		}
	}
	return ""
}

// add keeps what is in a directory until that is too much to copy.
func (d *datum) add(p string, info Info) {
	if len(d.found) <= maxCopyEntries {
		d.found = append(d.found, listed{p, info})
	}
}

// rootsOwn reports whether a directory and all above it are real ones, of root's, open to all.
func (s *surveyor) rootsOwn(dir string) bool {
	for up := range ups(dir) {
		if info, err := s.tree.Lstat(up); err != nil || !info.Mode.IsDir() || openToAll(info) != "" {
			return false
		}
	}
	return true
}

// addProgramData shows the data of installed programs outside of /usr, and the list of packages.
func (c *compiler) addProgramData() {
	var list []datum
	if t, ok := c.Tree.(surveyed); ok {
		list = t.programData()
	} else {
		list = programData(c.tree)
	}
	for _, d := range list {
		switch {
		case c.bases[d.path] || c.wanted(d.path) || c.hands.hold(d.path):
		case d.dir && len(d.copy) == 1: // it is empty
			c.addEntry(d.copy[0])
		default:
			c.bindBase(d.path, d.path, d.dir)
			if d.copy != nil {
				c.small[d.path] = d.copy
			}
		}
	}
}

// copyTrees replaces the base's binds of small directories by copies in the sandbox's own root, where nothing else is mounted in them.
func (c *compiler) copyTrees(v *View) {
	var copies []Entry
	v.Mounts = slices.DeleteFunc(v.Mounts, func(m Mount) bool {
		list, ok := c.small[m.Target]
		if !ok || m.Kind != MountBind || m.Source != m.Target || c.classes[m.Target] != classBase || c.scene.above[m.Target] {
			return false
		}
		copies = append(copies, list...)
		return true
	})
	if len(copies) == 0 {
		return
	}
	v.Entries = slices.DeleteFunc(v.Entries, func(e Entry) bool {
		return c.small[e.Path] != nil && slices.ContainsFunc(copies, func(n Entry) bool { return n.Path == e.Path })
	})
	v.Entries = append(v.Entries, copies...)
	slices.SortFunc(v.Entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
}

// wanted reports whether the policy has something of its own to do in a directory for which the host's must stay away: a secret
// in it, or a target that the host does not have.
func (c *compiler) wanted(dir string) bool {
	for _, s := range c.Policy.Secrets {
		if t, _ := follow(c.tree, s.Path); within(t.real, dir) || within(dir, t.real) || within(s.Path, dir) {
			return true
		}
	}
	made := func(p string) bool {
		if !clean(p) || !below(p, dir) {
			return false
		}
		_, err := follow(c.tree, p)
		return err != nil
	}
	return slices.ContainsFunc(c.Policy.Binds, func(b Bind) bool { return made(b.Target) }) ||
		slices.ContainsFunc(c.Policy.Tmpfs, func(t Tmpfs) bool { return made(t.Path) }) ||
		c.Policy.Workspace != nil && made(c.Policy.Workspace.Path)
}
