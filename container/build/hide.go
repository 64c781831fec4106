package build

import (
	"path"

	"github.com/sandboxrun/sandboxrun/container/idmap"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Names in a directory are hidden by an overlay whose upper layer has whiteouts (character devices 0:0, which everybody may make) of
// these names. The layer is a file system in memory that no program can reach.

// whiteouts makes the upper layer of the i-th mount of a view.
func (s *steps) whiteouts(i int, m rootfs.Mount) {
	layer := "/" + spec.GeneratedFile(i)
	made := map[string]bool{".": true}
	s.ops = append(s.ops, forkexec.Op{Kind: forkexec.OpMkdir, Target: layer, Flags: 0o755})
	for _, name := range m.Without {
		if dir := path.Dir(name); !made[dir] {
			made[dir] = true
			s.ops = append(s.ops, forkexec.Op{Kind: forkexec.OpMkdir, Target: path.Join(layer, dir), Flags: 0o755})
		}
		s.ops = append(s.ops, forkexec.Op{Kind: forkexec.OpWhiteout, Target: path.Join(layer, name)})
	}
}

// hide mounts the overlay over what is shown at the target.
func (s *steps) hide(i int, m rootfs.Mount) {
	if len(m.Without) == 0 {
		return
	}
	s.ops = append(s.ops,
		forkexec.Op{Kind: forkexec.OpHide, Source: "/" + spec.GeneratedFile(i), Target: newRoot + m.Target},
		forkexec.Op{Kind: forkexec.OpAttr, Target: newRoot + m.Target, Flags: uintptr(idmap.Attributes(m))})
}
