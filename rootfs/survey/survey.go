// Package survey finds data of installed programs that base "system" shows beside /usr. Programs keep a part of their read-only data
// elsewhere: settings in /etc, and indexes that are built at installation in /var/lib and /var/cache. A directory there is shown if it
// belongs to an installed program, is not the state of a service, and if everything in it is data that every user of the host may read.
//
// It imports of ours rootfs (for what it copies), hostfs, pathname and secret.
package survey

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/secret"
)

// DataParents are the directories in which programs of /usr have directories of their name.
var DataParents = []string{"/etc", "/var/cache", "/var/lib"} //nolint:gochecknoglobals // a table

// programDirs are where an installed program has a directory of its name.
var programDirs = []string{"/usr/share/", "/usr/lib/"} //nolint:gochecknoglobals // a table

// PackageData is the list of installed packages. Package managers write these files themselves, all of one mode, and there
// are too many of them to look at each.
var PackageData = []string{ //nolint:gochecknoglobals // a table
	"/var/lib/dpkg/alternatives", "/var/lib/dpkg/arch", "/var/lib/dpkg/diversions", "/var/lib/dpkg/info", "/var/lib/dpkg/status",
	"/var/lib/dpkg/statoverride", "/var/lib/dpkg/updates", "/var/lib/pacman/local", "/var/lib/rpm",
}

// neverShown are names that the rule never shows: who may log in, keys, where packages come from (an address may have a password
// in it), and what identifies the host. A star at the end stands for any rest. What has other modes than data for everybody is left out anyway.
var neverShown = []string{ //nolint:gochecknoglobals // a table
	"NetworkManager", "alternatives", "amazon", "apt", "cloud*", "containers", "cron*", "dbus*", "dhcp*", "dnf", "docker*", "dpkg",
	"kernel", "kubernetes", "libvirt", "mail*", "misc", "netplan", "pacman*", "pam*", "pki", "polkit*", "ppp", "private", "rpm", "samba",
	"security", "ssh*", "ssl", "sudo*", "systemd*", "udev", "wireguard", "yum*", "zypp*",
}

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

// Surveyor looks at directories of the host and judges whether base "system" shows them.
type Surveyor struct {
	Tree        hostfs.Tree
	mountPoints []string
	left        int // entries that may still be looked at
	services    map[string]bool
}

// New begins a survey of a host.
func New(t hostfs.Tree) *Surveyor {
	s := &Surveyor{Tree: t, left: maxDataTotal}
	for _, m := range t.Mounts() {
		if pathname.KernelPlace(m.Target) == "" {
			s.mountPoints = append(s.mountPoints, m.Target)
		}
	}
	return s
}

// datum is a directory or file that the rule shows.
type datum struct {
	Path  string
	Dir   bool
	found []hostfs.Listed // all that is in the directory, by path, up to one more than is copied
	Copy  []rootfs.Entry  // it and all that is in it, where that is copied
}

// surveyData takes from the tree what is there now: nothing is kept from one start to the next.
func surveyData(t hostfs.Tree) []datum {
	s := New(t)
	var list []datum
	for _, dir := range DataParents {
		if !s.rootsOwn(dir) {
			continue
		}
		dirs, _ := hostfs.ListDir(s.Tree, dir, true) // what cannot be listed has nothing to show
		slices.SortFunc(dirs, func(a, b hostfs.Listed) int { return strings.Compare(a.Name, b.Name) })
		for _, e := range dirs {
			if d, why := s.Judge(pathname.Join(dir, e.Name), e.Info); why == "" {
				d.Copy = s.copied(d, append([]hostfs.Listed{{Name: d.Path, Info: e.Info}}, d.found...)...)
				list = append(list, d)
			}
		}
	}
	for _, p := range PackageData {
		if d, ok := s.packages(p); ok {
			list = append(list, d)
		}
	}
	return list
}

// packages is a part of the list of packages, if it is there and root's.
func (s *Surveyor) packages(p string) (d datum, ok bool) {
	info, err := s.Tree.Lstat(p)
	if err != nil || info.Mode&fs.ModeSymlink != 0 || openToAll(info) != "" || !s.rootsOwn(pathname.Parent(p)) {
		return d, false
	}
	d = datum{Path: p, Dir: info.Mode.IsDir()}
	in, err := hostfs.SomeNames(s.Tree, p, 1)
	switch {
	case d.Dir && err == nil && len(in) == 0:
		d.Copy = []rootfs.Entry{{Path: p, Kind: rootfs.EntryDir, Mode: 0o755, Modified: info.Modified}}
	case !d.Dir && info.Size <= maxCopyBytes:
		d.Copy = s.copied(d, hostfs.Listed{Name: p, Info: info})
	}
	return d, true
}

// copied makes entries of what is small enough.
func (s *Surveyor) copied(d datum, files ...hostfs.Listed) []rootfs.Entry {
	bytes := int64(0)
	for _, f := range files {
		if f.Mode.IsRegular() {
			bytes += f.Size
		}
	}
	if len(d.found) > maxCopyEntries || bytes > maxCopyBytes {
		return nil
	}
	var entries []rootfs.Entry
	for _, f := range files {
		e := rootfs.Entry{Path: f.Name, Kind: rootfs.EntryDir, Mode: 0o755, Modified: f.Modified}
		var err error
		switch {
		case f.Mode&fs.ModeSymlink != 0:
			e.Kind, e.Mode, e.Modified = rootfs.EntrySymlink, 0, 0
			e.Content, err = s.Tree.Readlink(f.Name)
		case !f.Mode.IsDir():
			var data []byte
			data, err = s.Tree.ReadFile(f.Name)
			e.Kind, e.Mode, e.Content = rootfs.EntryFile, f.Mode&0o555, string(data)
		}
		if err != nil {
			return nil
		}
		entries = append(entries, e)
	}
	return entries
}

// openToAll says why a file or directory is not root's data for everybody, or "". The group root counts as root.
func openToAll(info hostfs.Info) string {
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

// Judge says why the directory p is not shown, or "" if it is.
func (s *Surveyor) Judge(p string, info hostfs.Info) (datum, string) {
	name, d := path.Base(p), datum{Path: p, Dir: true}
	program, parts := strings.CutSuffix(name, ".d") // packages and administrators add files to it
	switch {
	case !info.Mode.IsDir():
		return d, pathname.Printable(p) + " is not a directory"
	case openToAll(info) != "":
		return d, pathname.Printable(p) + " " + openToAll(info)
	case s.Program(program) == "":
		return d, "no program of that name is installed: neither /usr/share/" + pathname.Printable(program) + " nor /usr/lib/" + pathname.Printable(program) + " is there"
	case parts && !s.isCommand(program):
		return d, pathname.Printable(name) + " is a directory to which other packages add, and /usr/bin/" + pathname.Printable(program) + " is not there"
	case isNeverShown(program):
		return d, pathname.Printable(program) + " is one of the names of logins, keys, package sources and host identity, which are never shown"
	case s.isService(program):
		return d, pathname.Printable(name) + " is a service, and " + pathname.Printable(p) + " its own"
	case slices.ContainsFunc(s.mountPoints, func(mp string) bool { return pathname.Within(mp, p) }):
		return d, pathname.Printable(p) + " has a mount of the host's in it"
	}
	left := min(maxDataTree, s.left)
	before := left
	why := s.survey(&d, p, maxDataDepth, &left)
	s.left -= before - left
	return d, why
}

func isNeverShown(program string) bool {
	return slices.ContainsFunc(neverShown, func(pattern string) bool {
		start, open := strings.CutSuffix(pattern, "*")
		return program == start || open && strings.HasPrefix(program, start)
	})
}

// Program is the directory in /usr of the installed program of that name, or "". /etc/xdg is for every program that follows the XDG
// base directory specification.
func (s *Surveyor) Program(name string) string {
	if name == "xdg" {
		return "/etc/xdg"
	}
	for _, dir := range programDirs {
		if info, err := s.Tree.Lstat(dir + name); err == nil && info.Mode.IsDir() {
			return dir + name
		}
	}
	return ""
}

// isCommand reports whether a user's program of that name is installed: /etc/chromium.d is a part of Chromium's settings, but /etc/init.d and
// /etc/grub.d are the host's.
func (s *Surveyor) isCommand(name string) bool {
	_, err := s.Tree.Lstat("/usr/bin/" + name)
	return err == nil
}

// isService reports whether the host has a service of that name.
func (s *Surveyor) isService(name string) bool {
	if s.services == nil {
		s.services = map[string]bool{}
		const all = 1 << 16
		units, _ := hostfs.SomeNames(s.Tree, "/usr/lib/systemd/system", all) // a host without one has no such services
		for _, unit := range units {
			if n, ok := strings.CutSuffix(unit, ".service"); ok {
				s.services[strings.TrimSuffix(n, "@")] = true
			}
		}
		scripts, _ := hostfs.SomeNames(s.Tree, "/etc/init.d", all)
		for _, script := range scripts {
			s.services[script] = true
		}
	}
	lower := strings.ToLower(name)
	return s.services[name] || s.services[lower] || s.services[lower+"d"]
}

// survey looks at everything below a directory.
func (s *Surveyor) survey(d *datum, dir string, depth int, left *int) string {
	entries, err := hostfs.ListDir(s.Tree, dir, false)
	if err != nil {
		return pathname.Printable(dir) + " cannot be listed"
	}
	if *left -= len(entries); *left < 0 || depth == 0 {
		return pathname.Printable(dir) + " has more in it than is looked at for each sandbox"
	}
	for _, e := range entries {
		p := pathname.Join(dir, e.Name)
		why := openToAll(e.Info)
		switch {
		case why != "":
			why = pathname.Printable(p) + " " + why
		case secret.File(e.Name):
			why = pathname.Printable(p) + " has the name of a file with keys or passwords"
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
func (d *datum) add(p string, info hostfs.Info) {
	if len(d.found) <= maxCopyEntries {
		d.found = append(d.found, hostfs.Listed{Name: p, Info: info})
	}
}

// rootsOwn reports whether a directory and all above it are real ones, of root's, open to all.
func (s *Surveyor) rootsOwn(dir string) bool {
	for up := range pathname.Ups(dir) {
		if info, err := s.Tree.Lstat(up); err != nil || !info.Mode.IsDir() || openToAll(info) != "" {
			return false
		}
	}
	return true
}
