package container

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

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/spec"
)

// mountLine is what we read of a line of mountinfo.
type mountLine struct {
	id, parent int
	spec.Place        // what is mounted: all of a file system, or what lies below a path in it
	target     string // where, for the process whose mounts these are
	writable   bool
	kind       string // of file system
}

func readMounts(r io.Reader) ([]mountLine, error) {
	var list []mountLine
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
		list = append(list, mountLine{id, parent, spec.Place{Dev: f[2], Path: unescape(f[3])}, unescape(f[4]), f[5] == "rw" || strings.HasPrefix(f[5], "rw,"), kind})
	}
	return list, lines.Err()
}

// unescape undoes what mountinfo does to spaces and the like: "\040".
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// placeOf finds the place of a file that is open, by our own mounts.
func placeOf(f *os.File, own []mountLine) (spec.Place, error) {
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
			rel, err := filepath.Rel(m.target, path)
			if m.id == id && err == nil && filepath.IsLocal(rel) {
				return spec.Place{Dev: m.Dev, Path: filepath.Join(m.Path, rel)}, nil
			}
		}
	}
	return spec.Place{}, fmt.Errorf("%q is on no mount that can be seen", path)
}

// ownMounts are those of the mount namespace that this thread is in. Not of self, which is the first thread: where we have made
// the sandbox, libcontainer may have left that in its mount namespace. It spoils a thread for this, and Go can end any but the
// first.
func ownMounts() ([]mountLine, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	self, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer self.Close()
	return readMounts(self)
}

// shown knows what of the host a sandbox shows.
type shown struct {
	own   []mountLine
	there []mountLine // the sandbox's
	state spec.Place
}

// shows reads the mounts of the sandbox, those that binds have taken along included, and not the policy: a grant may have
// been renamed since.
func (sb *Sandbox) shows() (*shown, error) {
	s := &shown{}
	var err error
	if s.own, err = ownMounts(); err != nil {
		return nil, err
	}
	fd, err := unix.Openat(int(sb.proc.Fd()), "mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fail("sandbox_lost", "", "read the mounts of sandbox %q: %w", sb.state.ID, err)
	}
	theirs := os.NewFile(uintptr(fd), "mountinfo")
	defer theirs.Close()
	if s.there, err = readMounts(theirs); err != nil {
		return nil, err
	}
	root, err := sb.store.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer root.Close()
	s.state, err = placeOf(root, s.own)
	return s, err
}

// refuse refuses a directory of the host that the program can see, or that is in the state directory. what says what is
// there.
func (s *shown) refuse(dir *os.File, what, name string) error {
	p, err := placeOf(dir, s.own)
	if err != nil {
		return fail(codeOutputDir, "", "find out where %s %q is: %w", what, name, err)
	}
	const hint = "choose a directory that the program cannot see: outside of all that the policy grants"
	if p.Within(s.state) {
		return fail(codeOutputGranted, hint, "%s %q is in the state directory", what, name)
	}
	for _, m := range s.there {
		if p.Within(m.Place) {
			return fail(codeOutputGranted, hint, "%s %q is in what the program sees as %q", what, name, m.target)
		}
	}
	return nil
}
