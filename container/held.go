package container

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/disk"
	"github.com/sandboxrun/sandboxrun/container/stream"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// This file has the parts of a state that an exec needs, beside Launch.

// Enforcement is what holds a sandbox's limits, for its execs.
type Enforcement struct {
	Groups []forkexec.Group `json:"groups,omitempty"`
	Ours   int64            `json:"ours,omitempty"`  // processes of ours that are in them while no exec runs
	CPUs   []int            `json:"cpus,omitempty"`  // the only processors that its programs can use
	Tmpfs  []string         `json:"tmpfs,omitempty"` // file systems that count as memory where that is watched
	Write  []string         `json:"write,omitempty"` // what the program can write of the host, where that is limited
	Disk   disk.Use         `json:"disk,omitzero"`   // and what was there when the sandbox was made
}

func (h *Enforcement) has(controller int) bool {
	return slices.ContainsFunc(h.Groups, func(g forkexec.Group) bool { return g.Controllers&controller != 0 })
}

// Granted is a writable directory of the host that a sandbox shows. A bind shows the directory that stood at the path when the
// sandbox was made: what stands there later is another one, and what a program wrote would be lost, or go to where the old one
// was moved.
type Granted struct {
	Host string `json:"host"`
	Dev  uint64 `json:"dev"`
	Ino  uint64 `json:"ino"`
}

func (g Granted) there() bool {
	var st unix.Stat_t
	return unix.Lstat(g.Host, &st) == nil && st.Dev == g.Dev && st.Ino == g.Ino
}

// joined are the namespaces that the sandbox has of its own. One that it shares with the host cannot be entered, nor
// needs to be; that of control groups each exec makes for itself.
func joined(plan *spec.Plan) int {
	own := unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	if plan.OwnNetwork() {
		own |= unix.CLONE_NEWNET
	}
	return own
}

func outputLimit(l policy.Limits) int64 {
	if l.Output > 0 {
		return l.Output
	}
	return stream.DefaultOutput
}
