package container

import (
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/deny"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs"
)

// rememberGrants notes which directories a view shows for writing.
func (sb *Sandbox) rememberGrants(v *rootfs.View) error {
	in, err := sb.inside()
	if err != nil {
		return err
	}
	defer unix.Close(in.FD)
	for _, m := range v.Mounts {
		if m.Kind != rootfs.MountBind || !m.Writable || !m.Dir || m.Pin || m.Source == "" {
			continue
		}
		g := Granted{Host: m.Source}
		if g.Dev, g.Ino, err = in.Identify(m.Target); err == nil && g.there() { // else its file system has no such numbers
			sb.state.Launch.Granted = append(sb.state.Launch.Granted, g)
		}
	}
	return nil
}

// checkGranted refuses an exec whose writable directories are not those of the host any more.
func (sb *Sandbox) checkGranted() error {
	for _, g := range sb.state.Launch.Granted {
		if !g.there() {
			return fail(fault.GrantReplaced, "delete the sandbox and create it again",
				"start program in sandbox %q: the directory %q was replaced, moved or removed since the sandbox was made", sb.state.ID, g.Host)
		}
	}
	return nil
}

// shortGranted is the list for the short way of exec.
func shortGranted(list []Granted) []forkexec.Watch {
	out := make([]forkexec.Watch, 0, len(list))
	for _, g := range list {
		out = append(out, forkexec.Watch{Path: g.Host, Dev: g.Dev, Ino: g.Ino})
	}
	return out
}

// rememberDenied notes what a view hides, and by which masks.
func (sb *Sandbox) rememberDenied(v *rootfs.View) error {
	in, err := sb.inside()
	if err != nil {
		return err
	}
	defer unix.Close(in.FD)
	sb.state.Launch.Watch, err = deny.Masks(v, in)
	return err
}
