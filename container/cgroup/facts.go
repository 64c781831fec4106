package cgroup

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/spec"
)

// Facts are why control groups are as they are, for the command that changes that.
type Facts struct {
	Found    spec.Cgroups
	Systemd  bool
	Unified  string   // version 2: where it is mounted, if it has controllers
	Legacy   []string // version 1: the directories in which groups would be made
	ReadOnly bool
}

// Find looks at the control groups of this machine.
func Find() Facts {
	m, err := thisMachine()
	if err != nil {
		return Facts{Found: spec.Cgroups{Reason: err.Error()}}
	}
	g := Facts{Found: m.probe(), Systemd: m.systemd}
	top := ""
	if mount, _, err := m.unified(); err == nil {
		g.Unified, top = mount.point, mount.point
	} else {
		for _, c := range wanted() {
			if dir, ok := m.legacyParent(c); ok {
				g.Legacy = append(g.Legacy, dir)
				top = dir
			}
		}
	}
	g.ReadOnly = top != "" && errors.Is(unix.Access(top, unix.W_OK), unix.EROFS)
	return g
}
