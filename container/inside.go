package container

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/hostfile"
	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// ShowsDir reports whether a directory of the host is inside under its own name: the same directory, and not another one there.
func (sb *Sandbox) ShowsDir(dir string) bool {
	var outside, there unix.Stat_t
	if unix.Stat(dir, &outside) != nil {
		return false
	}
	in, err := sb.inside()
	if err != nil {
		return false
	}
	defer unix.Close(in.FD)
	f, err := in.Open(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Fstat(int(f.Fd()), &there) == nil && there.Dev == outside.Dev && there.Ino == outside.Ino
}

// inside opens the sandbox's root. The caller closes it.
func (sb *Sandbox) inside() (lookup.Root, error) {
	fd, err := unix.Openat(int(sb.proc.Fd()), "root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return lookup.Root{}, sb.lost()
	}
	if err != nil {
		return lookup.Root{}, fail(fault.SandboxUnavailable, "", "open the root of sandbox %q: %w", sb.state.ID, err)
	}
	return lookup.Root{FD: fd}, nil
}

// ended is the error if process 1 has no root any more. The kernel then takes the sandbox's mounts apart, so that files which the sandbox
// shows are not found.
func (sb *Sandbox) ended() error {
	in, err := sb.inside()
	if err == nil {
		unix.Close(in.FD)
	}
	return err
}

// Listen listens at an address in the network of the sandbox.
func (sb *Sandbox) Listen(at netip.AddrPort) ([]*os.File, error) {
	return forkexec.Listen(sb.init, []forkexec.Endpoint{{Addr: at}})
}

// CheckKey refuses a key that the programs of a sandbox can see: they could sign a record of their own making. A sandbox that has
// ended or is not there is no error here.
func (s *Store) CheckKey(id, path string) error {
	sb, err := s.Open(id)
	if err != nil {
		return nil // the command that uses the sandbox reports it
	}
	defer sb.Close()
	sees, err := sb.grantedPaths()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	location, err := procfs.LocationOf(f, sees.Own)
	if err != nil {
		return err
	}
	for _, m := range sees.There {
		if location.Within(m.Location) {
			return fail(fault.KeyGranted, "sign with a key that the policy does not show",
				"signing key %q is in what the programs of sandbox %q see as %q", path, id, m.Target)
		}
	}
	return nil
}

// grantedPaths reads what of the host the sandbox shows.
func (sb *Sandbox) grantedPaths() (*trust.Shown, error) {
	state, err := sb.store.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer state.Close()
	return trust.Read(sb.proc, state, sb.state.ID)
}

// CheckState refuses a state directory that a running sandbox of the caller's lets its programs write.
func (s *Store) CheckState(h *spec.Host) error { return trust.CheckState(s.path, s.root, h) }

// null opens the sandbox's own /dev/null: through the host's mount its owner could change its mode.
func (sb *Sandbox) null(mode uint64) (*os.File, error) {
	in, err := sb.inside()
	if err != nil {
		return nil, err
	}
	defer unix.Close(in.FD)
	null, err := in.Open(os.DevNull, mode)
	if err != nil {
		return nil, fmt.Errorf("open the null device of sandbox %q: %w", sb.state.ID, err)
	}
	return null, nil
}

// OpenResult makes a file for a result, where the program cannot see it.
func (sb *Sandbox) OpenResult(name string) (*hostfile.File, error) {
	sees, err := sb.grantedPaths()
	if err != nil {
		return nil, fmt.Errorf("keep result: %w", err)
	}
	return hostfile.Open(name, sees)
}
