package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/spec"
)

// CheckState refuses a state directory that a running sandbox of the caller's lets its programs write.
func CheckState(state string, root *os.Root, h *spec.Host) error {
	g, ok := h.Ground.(*ground)
	if !ok {
		return nil
	}
	own := g.inUse().own
	if len(own) == 0 {
		return nil
	}
	dir, err := root.Open(".")
	if err != nil {
		return fmt.Errorf("open state directory: %w", fault.Cause(err))
	}
	defer dir.Close()
	location, err := procfs.LocationOf(dir, g.mounts)
	if err != nil {
		return fault.New(fault.StateExposed, "was it removed? try again", "find out where the state directory %q is: %w", state, err)
	}
	for _, r := range own {
		inside, err := r.exposes(location)
		pid := filepath.Base(r.proc)
		if err != nil {
			return fault.New(fault.StateExposed, "try again, or keep the state elsewhere: --root DIR", "read the mounts of process %s: %w", pid, err)
		}
		if inside != "" {
			return fault.New(fault.StateExposed, "end that sandbox: kill -KILL "+pid+", look at what the directory holds and remove it; "+
				"or keep the state elsewhere: --root DIR",
				"programs in sandbox %q can write the state directory %q, as %q", r.sealed.ID, state, inside)
		}
	}
	return nil
}

// exposes returns the path inside at which its programs can write a location, or "".
func (r running) exposes(location hostfs.Location) (string, error) {
	if !r.mayWrite(location) {
		return "", nil
	}
	mounts, err := os.ReadFile(r.proc + "/mountinfo")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return "", nil // it has ended
	}
	if err != nil {
		return "", err
	}
	return exposedIn(mounts, location)
}

// writable lists what of the host a view lets programs write, as forkexec.Sealed has it.
func (g *ground) writable(v *rootfs.View) ([]string, error) {
	var list []string
	for _, m := range v.Mounts {
		if m.Kind != rootfs.MountBind || !m.Writable || m.Pin || m.Source == "" {
			continue
		}
		shown, err := g.Shown(m.Source)
		if err != nil {
			return nil, fmt.Errorf("find out where %q is: %w", m.Source, err)
		}
		for _, s := range shown {
			list = append(list, s.Location.Dev+" "+s.Location.Path)
		}
	}
	return list, nil
}

// mayWrite reports whether one of a sandbox's mounts may let its programs write a location. To read the mounts themselves costs more.
func (r running) mayWrite(location hostfs.Location) bool {
	return slices.ContainsFunc(r.sealed.Writable, func(text string) bool {
		dev, path, _ := strings.Cut(text, " ")
		return location.Within(hostfs.Location{Dev: dev, Path: path})
	})
}

// exposedIn returns the path at which a program can write a location by one of these mounts, or "".
func exposedIn(mountinfo []byte, location hostfs.Location) (string, error) {
	list := hostfs.ParseMounts(string(mountinfo))
	for i := range list {
		m := &list[i]
		if !m.Writable || !location.Within(m.Location) {
			continue
		}
		inside := filepath.Join(m.Target, strings.TrimPrefix(location.Path, m.Path))
		if !covered(list, m.ID, inside, nil) && visible(list, m) {
			return inside, nil
		}
	}
	return "", nil
}

// covered reports whether a path that a mount shows has another mount on it or above it.
func covered(list []hostfs.Mount, on int, inside string, but *hostfs.Mount) bool {
	return slices.ContainsFunc(list, func(m hostfs.Mount) bool {
		return m.Parent == on && (but == nil || m.ID != but.ID) && pathname.Within(inside, m.Target)
	})
}

// visible reports whether no mount hides a whole other one.
func visible(list []hostfs.Mount, m *hostfs.Mount) bool {
	for range list { // no way up is longer
		i := slices.IndexFunc(list, func(up hostfs.Mount) bool { return up.ID == m.Parent && up.ID != m.ID })
		if i < 0 {
			return true
		}
		if covered(list, m.Parent, m.Target, m) {
			return false
		}
		m = &list[i]
	}
	return true
}
