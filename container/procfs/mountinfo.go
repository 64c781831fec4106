package procfs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Mount is what we read of a line of mountinfo.
type Mount struct {
	ID, Parent int
	spec.Place        // what is mounted: all of a file system, or what lies below a path in it
	Target     string // where, for the process whose mounts these are
	Writable   bool
	Kind       string // of file system; empty where the line does not say
}

// ReadMounts reads a mountinfo file, as /proc/PID/mountinfo is. Lines of an unknown form are left out.
func ReadMounts(r io.Reader) ([]Mount, error) {
	var list []Mount
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20) // an overlay's options may be long
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 6 {
			continue
		}
		id, err := strconv.Atoi(f[0])
		if err != nil {
			continue
		}
		parent, err := strconv.Atoi(f[1])
		if err != nil {
			continue
		}
		kind := ""
		if i := slices.Index(f, "-"); i > 0 && i+1 < len(f) { // the fields before it vary in number
			kind = f[i+1]
		}
		list = append(list, Mount{id, parent, spec.Place{Dev: f[2], Path: hostfs.Unescape(f[3])}, hostfs.Unescape(f[4]), f[5] == "rw" || strings.HasPrefix(f[5], "rw,"), kind})
	}
	return list, lines.Err()
}

// PlaceOf finds the place of a file that is open, by our own mounts.
func PlaceOf(f *os.File, own []Mount) (spec.Place, error) {
	proc := fmt.Sprintf("/proc/self/fdinfo/%d", f.Fd())
	info, err := os.ReadFile(proc)
	if err != nil {
		return spec.Place{}, err
	}
	path, err := os.Readlink(strings.Replace(proc, "fdinfo", "fd", 1))
	if err != nil {
		return spec.Place{}, err
	}
	for line := range strings.Lines(string(info)) {
		text, ok := strings.CutPrefix(line, "mnt_id:")
		if !ok {
			continue
		}
		id, _ := strconv.Atoi(strings.TrimSpace(text))
		for _, m := range own {
			rel, err := filepath.Rel(m.Target, path)
			if m.ID == id && err == nil && filepath.IsLocal(rel) {
				return spec.Place{Dev: m.Dev, Path: filepath.Join(m.Path, rel)}, nil
			}
		}
	}
	return spec.Place{}, fmt.Errorf("%q is on no mount that can be seen", path)
}

// OwnMounts are those of the mount namespace that this thread is in. Not of self, which is the first thread: where we have made
// the sandbox, libcontainer may have left that in its mount namespace. It spoils a thread for this, and Go can end any but the
// first.
func OwnMounts() ([]Mount, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	self, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer self.Close()
	return ReadMounts(self)
}

// Shown is what of the host a sandbox shows, by the mounts of both.
type Shown struct {
	Own   []Mount
	There []Mount    // the sandbox's
	State spec.Place // where the state directory is
}

// Within says whether a path is a directory or below it.
func Within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}
