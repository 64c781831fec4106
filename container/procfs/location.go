package procfs

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// LocationOf finds the location of a file that is open, by our own mounts.
func LocationOf(f *os.File, own []hostfs.Mount) (hostfs.Location, error) {
	var st unix.Statx_t
	fd := int(f.Fd())
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return hostfs.Location{}, &os.PathError{Op: "statx", Path: f.Name(), Err: err}
	}
	path, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return hostfs.Location{}, err
	}
	if st.Mask&unix.STATX_MNT_ID != 0 {
		for _, m := range own {
			if l, ok := m.Locate(path); ok && uint64(m.ID) == st.Mnt_id {
				return l, nil
			}
		}
	}
	return hostfs.Location{}, fmt.Errorf("%q is on no mount that can be seen", path)
}

// Shown is what of the host a sandbox shows, by the mounts of both.
type Shown struct {
	Own   []hostfs.Mount
	There []hostfs.Mount  // the sandbox's
	State hostfs.Location // where the state directory is
}
