package build

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// pins make mount points of what must not be renamed or removed, at a path that no program reaches. The kernel refuses to rename
// or remove what any mount of the namespace stands on, under whatever name. Mounts on the directories themselves would do the
// same, but no file could be renamed or linked across them (EXDEV), which programs do not expect in their own tree. The
// place is below /proc, before that is mounted.
func (s *steps) pins(plan *spec.Plan) {
	if !slices.ContainsFunc(plan.View.Mounts, func(m rootfs.Mount) bool { return m.Pin }) {
		return
	}
	const place = newRoot + "/proc"
	s.mount(forkexec.Op{Source: "pins", Target: place, Type: "tmpfs", Data: "mode=0", Flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC})
	for i, m := range plan.View.Mounts {
		if !m.Pin {
			continue
		}
		o := forkexec.Op{Kind: forkexec.OpMkdir, Target: fmt.Sprintf("%s/%d", place, i)}
		if !m.Dir {
			o.Kind = forkexec.OpFile
		}
		s.ops = append(s.ops, o)
		s.bindAt(i, m, o.Target)
		s.ops = append(s.ops, forkexec.Op{Kind: forkexec.OpBind, Source: o.Target, Target: o.Target}) // this one stands on what is pinned
	}
}
