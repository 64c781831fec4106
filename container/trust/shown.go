package trust

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// Shown knows what of the host a sandbox shows.
type Shown struct{ procfs.Shown }

// Read reads the mounts of the sandbox, those that binds have taken along included, and not the policy: a grant may have
// been renamed since.
func Read(proc, state *os.File, id string) (*Shown, error) {
	s := &Shown{}
	var err error
	if s.Own, err = hostfs.OwnMounts(); err != nil {
		return nil, err
	}
	fd, err := unix.Openat(int(proc.Fd()), "mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fault.New(fault.SandboxLost, "", "read the mounts of sandbox %q: %w", id, err)
	}
	theirs := os.NewFile(uintptr(fd), "mountinfo")
	defer theirs.Close()
	text, err := io.ReadAll(theirs)
	if err != nil {
		return nil, err
	}
	s.There = hostfs.ParseMounts(string(text))
	s.State, err = procfs.LocationOf(state, s.Own)
	return s, err
}

// Refuse refuses a directory of the host that the program can see, or that is in the state directory. what says what is
// there.
func (s *Shown) Refuse(dir *os.File, what, name string) error {
	p, err := procfs.LocationOf(dir, s.Own)
	if err != nil {
		return fault.New(fault.OutputDirUnusable, "", "find out where %s %q is: %w", what, name, err)
	}
	const hint = "choose a directory that the program cannot see: outside of all that the policy grants"
	if p.Within(s.State) {
		return fault.New(fault.OutputDirGranted, hint, "%s %q is in the state directory", what, name)
	}
	for _, m := range s.There {
		if p.Within(m.Location) {
			return fault.New(fault.OutputDirGranted, hint, "%s %q is in what the program sees as %q", what, name, m.Target)
		}
	}
	return nil
}
