package container

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs"
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

// rememberMasks notes what a view hides, and by which masks.
func (sb *Sandbox) rememberMasks(v *rootfs.View) error {
	in, err := sb.inside()
	if err != nil {
		return err
	}
	defer unix.Close(in.root)
	list := make([]Watch, 0, len(v.Masked)+len(v.Absent))
	for _, d := range v.Masked {
		w := Watch{Denied: d}
		if w.Dev, w.Ino, err = in.identify(d.Inside); err != nil {
			return fail("sandbox_unavailable", "", "create sandbox: look for the mask of %q: %w", d.Host, err)
		}
		list = append(list, w)
	}
	for _, d := range v.Absent {
		list = append(list, Watch{Denied: d})
	}
	sb.state.Launch.Watch = list
	return nil
}

// identify says which file is at a path inside.
func (in inside) identify(path string) (dev, ino uint64, err error) {
	f, err := in.open(path, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	return st.Dev, st.Ino, err
}

// masked says whether a path's mask is where it was put.
func (in inside) masked(w Watch) bool {
	if w.Ino == 0 {
		return false
	}
	dev, ino, err := in.identify(w.Inside)
	return err == nil && dev == w.Dev && ino == w.Ino
}

// lookout is what an exec finds at such a path when it starts.
type lookout struct {
	Watch
	there bool
	bare  bool // there, and without a mask
	dir   bool
}

func lookOut(list []Watch, in inside) ([]lookout, error) {
	found := make([]lookout, 0, len(list))
	for _, w := range list {
		l := lookout{Watch: w}
		var st unix.Stat_t
		switch err := unix.Lstat(w.Host, &st); err {
		case nil:
			l.there = true
			kind := st.Mode & unix.S_IFMT
			l.dir = kind == unix.S_IFDIR
			// A link shows nothing but where it leads; what is there is denied or granted under its own name.
			l.bare = kind != unix.S_IFLNK && !in.masked(w)
		case unix.ENOENT, unix.ENOTDIR:
		default:
			return nil, fail("deny_unchecked", "the launcher must be able to see it", "look for denied path %q: %w", w.Host, err)
		}
		found = append(found, l)
	}
	return found, nil
}

// cover masks what stands bare: a directory by an empty one, anything else by a device that cannot be opened on such a
// mount.
func cover(list []lookout) []forkexec.Mount {
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	var mounts []forkexec.Mount
	for _, l := range list {
		switch {
		case !l.bare:
		case l.dir:
			mounts = append(mounts, forkexec.Mount{
				Source: "tmpfs", Target: l.Inside, Type: "tmpfs", Data: "mode=0,nr_inodes=2,size=4k", Flags: safe | unix.MS_RDONLY,
			})
		default:
			mounts = append(mounts,
				forkexec.Mount{Source: "/dev/null", Target: l.Inside, Flags: unix.MS_BIND},
				forkexec.Mount{Target: l.Inside, Flags: unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | safe})
		}
	}
	return mounts
}

// moveAppeared moves what has appeared at a denied path during an exec to a name beside it, and says so. It stays within
// the grant: the program may have put links in the way.
func moveAppeared(list []lookout, suffix string) []string {
	var said []string
	for _, l := range list {
		if l.there || !l.Writable {
			continue
		}
		if _, err := os.Lstat(l.Host); err != nil {
			continue
		}
		to, err := moveAside(l.Denied, suffix)
		if err != nil {
			said = append(said, fmt.Sprintf("%q appeared during the exec, which %s denies, and could not be moved away: %v", l.Host, l.From, err))
			continue
		}
		said = append(said, fmt.Sprintf("%q appeared during the exec, which %s denies: moved to %q", l.Host, l.From, to))
	}
	return said
}

func moveAside(a rootfs.Denied, suffix string) (string, error) {
	rel, err := filepath.Rel(a.Grant, a.Host)
	if err != nil {
		return "", err
	}
	root, err := os.OpenRoot(a.Grant)
	if err != nil {
		return "", err
	}
	defer root.Close()
	to := rel + ".denied-" + suffix
	if _, err := root.Lstat(to); err == nil {
		return "", fs.ErrExist
	}
	return filepath.Join(a.Grant, to), root.Rename(rel, to)
}
