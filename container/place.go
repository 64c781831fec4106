package container

import (
	"errors"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// ShowsDir says whether a directory of the host is inside under its own name: the same directory, and not another one there.
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
		return lookup.Root{}, fail("sandbox_unavailable", "", "open the root of sandbox %q: %w", sb.state.ID, err)
	}
	return lookup.Root{FD: fd}, nil
}

// Listen listens at an address in the network of the sandbox.
func (sb *Sandbox) Listen(at netip.AddrPort) ([]*os.File, error) {
	return forkexec.Listen(sb.init, []forkexec.Endpoint{{Addr: at}})
}
