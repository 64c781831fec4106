package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs"
)

// lookout is a denied path that did not exist when the sandbox was made. Nothing can be mounted where nothing is, and
// to make something there would leave phantom files in people's directories (anthropics/claude-code#26722). So each
// exec looks again: what has appeared since is covered for that exec, and what appears during it was made by the program
// or beside it, and is moved out of the way when the exec has ended, never deleted.
type lookout struct {
	rootfs.Absent
	there bool
	dir   bool
}

func lookOut(absent []rootfs.Absent) ([]lookout, error) {
	list := make([]lookout, 0, len(absent))
	for _, a := range absent {
		info, err := os.Lstat(a.Host)
		switch {
		case err == nil:
			list = append(list, lookout{a, true, info.IsDir()})
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
			list = append(list, lookout{Absent: a})
		default:
			return nil, fail("deny_unchecked", "the launcher must be able to see it", "look for denied path: %w", err)
		}
	}
	return list, nil
}

// maskAppeared covers what has appeared since the sandbox was made: a directory by an empty one, anything else by a
// device that cannot be opened on such a mount.
func maskAppeared(list []lookout) []forkexec.Mount {
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	var mounts []forkexec.Mount
	for _, l := range list {
		switch {
		case !l.there:
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
		to, err := moveAside(l.Absent, suffix)
		if err != nil {
			said = append(said, fmt.Sprintf("%q appeared during the exec, which %s denies, and could not be moved away: %v", l.Host, l.From, err))
			continue
		}
		said = append(said, fmt.Sprintf("%q appeared during the exec, which %s denies: moved to %q", l.Host, l.From, to))
	}
	return said
}

func moveAside(a rootfs.Absent, suffix string) (string, error) {
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
