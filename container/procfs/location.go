package procfs

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// LocationOf finds the location of a file that is open, by our own mounts.
func LocationOf(f *os.File, own []hostfs.Mount) (hostfs.Location, error) {
	proc := fmt.Sprintf("/proc/self/fdinfo/%d", f.Fd())
	info, err := os.ReadFile(proc)
	if err != nil {
		return hostfs.Location{}, err
	}
	path, err := os.Readlink(strings.Replace(proc, "fdinfo", "fd", 1))
	if err != nil {
		return hostfs.Location{}, err
	}
	for line := range strings.Lines(string(info)) {
		text, ok := strings.CutPrefix(line, "mnt_id:")
		if !ok {
			continue
		}
		id, _ := strconv.Atoi(strings.TrimSpace(text))
		for _, m := range own {
			if l, ok := m.Locate(path); ok && m.ID == id {
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
