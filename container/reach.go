package container

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/procfs"
)

// shown knows what of the host a sandbox shows.
type shown struct{ procfs.Shown }

// shows reads the mounts of the sandbox, those that binds have taken along included, and not the policy: a grant may have
// been renamed since.
func (sb *Sandbox) shows() (*shown, error) {
	s := &shown{}
	var err error
	if s.Own, err = procfs.OwnMounts(); err != nil {
		return nil, err
	}
	fd, err := unix.Openat(int(sb.proc.Fd()), "mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fail("sandbox_lost", "", "read the mounts of sandbox %q: %w", sb.state.ID, err)
	}
	theirs := os.NewFile(uintptr(fd), "mountinfo")
	defer theirs.Close()
	if s.There, err = procfs.ReadMounts(theirs); err != nil {
		return nil, err
	}
	root, err := sb.store.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer root.Close()
	s.State, err = procfs.PlaceOf(root, s.Own)
	return s, err
}

// refuse refuses a directory of the host that the program can see, or that is in the state directory. what says what is
// there.
func (s *shown) refuse(dir *os.File, what, name string) error {
	p, err := procfs.PlaceOf(dir, s.Own)
	if err != nil {
		return fail(codeOutputDir, "", "find out where %s %q is: %w", what, name, err)
	}
	const hint = "choose a directory that the program cannot see: outside of all that the policy grants"
	if p.Within(s.State) {
		return fail(codeOutputGranted, hint, "%s %q is in the state directory", what, name)
	}
	for _, m := range s.There {
		if p.Within(m.Place) {
			return fail(codeOutputGranted, hint, "%s %q is in what the program sees as %q", what, name, m.Target)
		}
	}
	return nil
}
