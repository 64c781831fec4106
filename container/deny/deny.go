package deny

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// Watch is a denied path that each exec looks at. A mask stays as long as the file under it does, and where nothing is
// nothing can be mounted; to make something there would leave phantom files in people's directories
// (anthropics/claude-code#26722). So what is there and has no mask of its own any more, or never had, is covered for that
// exec. What appears during an exec was made by the program or beside it, and is moved out of the way when the exec has
// ended, never deleted.
type Watch struct {
	rootfs.Denied
	// Of the mask that the sandbox has there; 0: nothing was there to be masked. The number of what is masked would not
	// do: a file that is made where another was removed often gets the number of that.
	Dev uint64 `json:"dev,omitempty"`
	Ino uint64 `json:"ino,omitempty"`
}

// Masks are what a view hides, with the masks that it is hidden by.
func Masks(v *rootfs.View, in lookup.Root) ([]Watch, error) {
	list := make([]Watch, 0, len(v.Masked)+len(v.Absent))
	for _, d := range v.Masked {
		w := Watch{Denied: d}
		var err error
		if w.Dev, w.Ino, err = in.Identify(d.Inside); err != nil {
			return nil, fault.New(fault.SandboxUnavailable, "", "create sandbox: look for the mask of %q: %w", d.Host, err)
		}
		list = append(list, w)
	}
	for _, d := range v.Absent {
		list = append(list, Watch{Denied: d})
	}
	return list, nil
}

// masked reports whether a path's mask is where it was put.
func masked(in lookup.Root, w Watch) bool {
	if w.Ino == 0 {
		return false
	}
	dev, ino, err := in.Identify(w.Inside)
	return err == nil && dev == w.Dev && ino == w.Ino
}

// watched is what an exec finds at such a path when it starts.
type watched struct {
	Watch
	grant *grantDir
	there bool
	bare  bool   // there, and without a mask
	dir   bool   // what is masked is a directory
	shut  string // a directory above it that cannot be searched, as the program sees it; it is masked in place of the path
	link  bool   // a link stands above it
}

// Found are all of them, with the grants that they lie in. The grants stay open from before the program starts until
// after its end: a path of the host's, looked up then, would follow the links that the program has made.
type Found struct {
	list   []watched
	grants map[string]*grantDir // by the path inside
}

// grantDir is a grant that holds denied paths: a directory, or the denied file itself.
type grantDir struct{ fd int }

// Close closes the grants.
func (l *Found) Close() {
	if l == nil {
		return
	}
	for _, g := range l.grants {
		unix.Close(g.fd)
	}
	l.grants = nil
}

// Open looks at what is denied. Everything is looked up below the grant, by descriptors and without a link: a program of
// an earlier exec, or of one that runs now, may have put anything in the way.
func Open(list []Watch, in lookup.Root) (*Found, error) {
	found := &Found{grants: map[string]*grantDir{}}
	for _, w := range list {
		l := watched{Watch: w}
		err := l.look(in, found)
		if err != nil {
			found.Close()
			return nil, fault.New(fault.DenyUnchecked, "the launcher must be able to see it", "look for denied path %q: %w", w.Host, err)
		}
		found.list = append(found.list, l)
	}
	return found, nil
}

// Restore is what an exec of the short way found when it started: masks, or nothing. grants are descriptors of the grants in which there was
// nothing, in the order of the paths.
func Restore(list []Watch, grants []int) *Found {
	all := &Found{grants: map[string]*grantDir{}}
	for _, w := range list {
		l := watched{Watch: w, there: w.Ino != 0}
		if !l.there {
			shown := w.ShownGrant()
			if all.grants[shown] == nil {
				all.grants[shown] = &grantDir{grants[0]}
			}
			l.grant, grants = all.grants[shown], grants[1:]
		}
		all.list = append(all.list, l)
	}
	return all
}

// Below is the denied path relative to its grant; "." is the grant itself.
func (w Watch) Below() string {
	if rel, ok := pathname.Rest(w.Host, w.Grant); ok {
		return rel
	}
	return "."
}

// ShownGrant is the path inside of the grant that holds the denied path.
func (w Watch) ShownGrant() string {
	if rel := w.Below(); rel != "." {
		return strings.TrimSuffix(w.Inside, "/"+rel)
	}
	return w.Inside
}

// open opens the grant that holds a denied path, once for all of them.
func (l *Found) open(w Watch, in lookup.Root) (*grantDir, error) {
	shown := w.ShownGrant()
	if g := l.grants[shown]; g != nil {
		return g, nil
	}
	fd, err := openGrant(w, shown, in)
	if err != nil {
		return nil, err
	}
	g := &grantDir{fd}
	l.grants[shown] = g
	return g, nil
}

// openGrant opens it by its path on the host, where the launcher has its usual rights, or, where that now leads to another
// file than the sandbox was made with, by its path inside. A program may have moved either.
func openGrant(w Watch, shown string, in lookup.Root) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	host, hostErr := unix.Openat2(unix.AT_FDCWD, w.Grant, &how)
	f, err := in.Open(shown, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return host, hostErr
	}
	defer f.Close()
	if hostErr == nil {
		var want, is unix.Stat_t
		if unix.Fstat(int(f.Fd()), &want) == nil && unix.Fstat(host, &is) == nil && want.Dev == is.Dev && want.Ino == is.Ino {
			return host, nil
		}
		unix.Close(host)
	}
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
}

// parent opens the directory that a denied path is in, never through a link. Where that cannot be searched, shut is the
// directory that stops it, relative to the grant.
func (g *grantDir) parent(rel string) (dir int, shut string, err error) {
	dir, err = g.descend(filepath.Dir(rel))
	if !errors.Is(err, unix.EACCES) {
		return dir, "", err
	}
	for shut = filepath.Dir(rel); shut != "."; shut = filepath.Dir(shut) { // the topmost that can be reached stops it
		fd, err := g.descend(shut)
		if err == nil {
			unix.Close(fd)
			return -1, shut, unix.EACCES
		}
		if !errors.Is(err, unix.EACCES) {
			return -1, "", err // it has changed just now
		}
	}
	return -1, ".", unix.EACCES
}

func (g *grantDir) descend(rel string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(g.fd, rel, &how)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

// look finds out what stands at one denied path.
func (l *watched) look(in lookup.Root, all *Found) error {
	var err error
	if l.grant, err = all.open(l.Watch, in); lookup.Absent(err) {
		return nil // it has been moved or removed, and what is denied with it
	} else if err != nil {
		return err
	}
	st, shut, err := l.stat()
	switch {
	case err == nil:
		l.there = true
		kind := st.Mode & unix.S_IFMT
		l.dir = kind == unix.S_IFDIR
		// A link shows nothing but where it leads; what is there is denied or granted under its own name.
		l.bare = kind != unix.S_IFLNK && !masked(in, l.Watch)
	case shut != "":
		// The owner of the directory can make it searchable again, and then the denied path would have no mask.
		l.shut = filepath.Join(l.ShownGrant(), shut)
	case !lookup.Absent(err):
		return err
	}
	l.link = errors.Is(err, unix.ELOOP)
	return nil
}

// stat looks at the path itself, not at where a link leads.
func (l *watched) stat() (st unix.Stat_t, shut string, err error) {
	rel := l.Below()
	if rel == "." {
		return st, "", unix.Fstat(l.grant.fd, &st)
	}
	dir, shut, err := l.grant.parent(rel)
	if err != nil {
		return st, shut, err
	}
	defer unix.Close(dir)
	err = unix.Fstatat(dir, filepath.Base(rel), &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.EACCES) {
		shut = filepath.Dir(rel)
	}
	return st, shut, err
}

// Cover masks what stands bare: a directory by an empty one, anything else by a device that cannot be opened on such a
// mount, or by an empty file.
func (l *Found) Cover() []forkexec.Mount {
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	var mounts []forkexec.Mount
	shut := map[string]bool{}
	directory := func(target string, empty bool) forkexec.Mount {
		mode := "mode=0"
		if empty {
			mode = "mode=0555"
		}
		return forkexec.Mount{
			Source: "tmpfs", Target: target, Type: "tmpfs", Data: mode + ",nr_inodes=2,size=4k", Flags: safe | unix.MS_RDONLY,
		}
	}
	for _, l := range l.list {
		switch {
		case l.shut != "" && !shut[l.shut]:
			shut[l.shut] = true
			mounts = append(mounts, directory(l.shut, false))
		case !l.bare:
		case l.dir:
			mounts = append(mounts, directory(l.Inside, l.Empty))
		default:
			source := "/dev/null"
			if l.Empty {
				source = rootfs.EmptyFile
			}
			mounts = append(mounts,
				forkexec.Mount{Source: source, Target: l.Inside, Flags: unix.MS_BIND},
				forkexec.Mount{Target: l.Inside, Flags: unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | safe})
		}
	}
	return mounts
}

// Warnings names the directories that are hidden since nobody can say what is in them.
func (l *Found) Warnings() []string {
	var warnings []string
	for _, l := range l.list {
		if l.shut != "" {
			warnings = append(warnings, fmt.Sprintf("%q cannot be searched, so this exec sees an empty directory there: %s denies %q", l.shut, l.From, l.Host))
		}
	}
	return warnings
}

// MoveAppeared moves what has appeared at a denied path during an exec to a name beside it, and says so.
func (l *Found) MoveAppeared(suffix string) []string {
	if l == nil {
		return nil
	}
	defer l.Close()
	var warnings []string
	for _, l := range l.list {
		if l.there || !l.Writable || l.shut != "" || l.grant == nil {
			continue
		}
		to, err := l.moveAside(suffix)
		switch {
		case errors.Is(err, unix.ELOOP) && !l.link:
			warnings = append(warnings, fmt.Sprintf("%q, which %s denies, could not be moved away if it is there: a symbolic link above it appeared during the exec", l.Host, l.From))
		case lookup.Absent(err):
		case err != nil:
			warnings = append(warnings, fmt.Sprintf("%q, which %s denies, could not be moved away if it appeared during the exec: %v", l.Host, l.From, err))
		default:
			warnings = append(warnings, fmt.Sprintf("%q appeared during the exec, which %s denies: moved to %q", l.Host, l.From, to))
		}
	}
	return warnings
}

// moveAside renames within one directory that is open: whatever a program that still runs does to the path, no file
// outside of the grant is ever named.
func (l *watched) moveAside(suffix string) (string, error) {
	rel := l.Below()
	if rel == "." {
		return "", unix.ENOENT // a grant is there from the start
	}
	dir, _, err := l.grant.parent(rel)
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	name, to := filepath.Base(rel), filepath.Base(rel)+".denied-"+suffix
	err = unix.Renameat2(dir, name, dir, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) { // some network file systems cannot
		err = renameFree(dir, name, to)
	}
	return filepath.Join(filepath.Dir(l.Host), to), err
}

// renameFree is the same on file systems that do not know the flag. Nothing of value has the new name: it is the exec's own.
func renameFree(dir int, name, to string) error {
	var st unix.Stat_t
	switch err := unix.Fstatat(dir, to, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err == nil:
		return unix.EEXIST
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	return unix.Renameat(dir, name, dir, to)
}

// Leftovers lists what is on the host that a sandbox without a fault does not leave: files where something denied was not, and
// what was moved aside there.
func Leftovers(list []Watch, id string) []string {
	left := []string{}
	for _, w := range list {
		if w.Ino != 0 {
			continue
		}
		if _, err := os.Lstat(w.Host); err == nil {
			left = append(left, w.Host)
		}
		moved, _ := filepath.Glob(escapeGlob(w.Host) + ".denied-" + escapeGlob(id) + "-*")
		left = append(left, moved...)
	}
	slices.Sort(left)
	return left
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}
