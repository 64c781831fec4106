package build

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/guard"
	"github.com/sandboxrun/sandboxrun/container/idmap"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Places in the root in which process 1 starts. It is a directory of the store that all sandboxes share and nobody
// writes; programs never see it, since building ends with another root in its place.
const (
	HostDir   = "/host"      // the host's file tree, where a launcher without privilege binds from
	newRoot   = "/root"      // where the sandbox's own root is put together
	masksDir  = "/masks"     // what masks are binds of
	madeDir   = "/generated" // files that are bound over the host's
	rootBytes = 64 << 20     // the most that the sandbox's own root holds; it is small files, and read-only in the end
)

// Dirs are these directories, and those that process 1 needs before.
func Dirs() []string { return []string{"/proc", "/dev", HostDir, newRoot, masksDir, madeDir} }

// Trees are the host's files that a privileged launcher hands in as detached mounts, by their index in the list of the view's
// mounts: it may see more than the sandbox's own root user does, such as a home directory of mode 0700. nil means that
// the launcher may not, and the sandbox binds for itself.
type Trees map[int][]idmap.Part

// Close closes all.
func (t Trees) Close() {
	for _, parts := range t {
		idmap.Close(parts)
	}
}

// OpenTrees opens the trees of all binds, less what another mount of the view covers; nil where the launcher has not the privilege.
func OpenTrees(plan *spec.Plan) (Trees, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	t := Trees{}
	for i, m := range plan.View.Mounts {
		if m.Kind != rootfs.MountBind || m.Source == "" {
			continue
		}
		g := idmap.Grant{Source: m.Source, Attributes: idmap.Attributes(m)}
		if m.Idmapped {
			g.UIDs, g.GIDs = plan.IDs.GrantUIDs, plan.IDs.GrantGIDs
		}
		parts, err := idmap.OpenGrant(g, func(path string) bool { return covered(plan.View, m, path) })
		if errors.Is(err, unix.EPERM) && len(g.UIDs) == 0 { // root, but of a container
			t.Close()
			return nil, nil
		}
		if err != nil {
			t.Close()
			if d := diagnose.Machine(); d != nil { // a limit of mount namespaces is met here first
				return nil, d
			}
			return nil, fault.New(fault.GrantMissing, "did it change while the sandbox was made?", "open %q: %w", m.Source, err)
		}
		t[i] = parts
	}
	return t, nil
}

// covered reports whether another mount of the view covers a mount point of the host below what m shows: what the plan leaves out is.
func covered(v *rootfs.View, m rootfs.Mount, host string) bool {
	rel, err := filepath.Rel(m.Source, host)
	return err == nil && slices.ContainsFunc(v.Mounts, func(n rootfs.Mount) bool {
		return !n.Pin && n.Target != m.Target && pathname.Within(n.Target, m.Target) && pathname.Within(path.Join(m.Target, rel), n.Target)
	})
}

// steps puts a sandbox's root together.
type steps struct {
	ops    []forkexec.Op
	made   made
	mounts map[string]bool // targets so far; true for those in which things can be made
	trees  Trees
}

// View turns the Plan's mounts into the steps that make them. What runc would do with the Plan's OCI configuration is the same; this
// does it in one go, without a look at each, where runc's way takes a fifth of a millisecond a mount.
func View(plan *spec.Plan, t Trees, found *Found) []forkexec.Op {
	s := &steps{mounts: map[string]bool{"/": true}, trees: t}
	s.made.add("/")
	s.ops = shareOps(plan)
	s.mount(forkexec.Op{
		Source: "root", Target: newRoot, Type: "tmpfs", Data: fmt.Sprintf("mode=755,size=%d", rootBytes),
		Flags: unix.MS_NOSUID | unix.MS_NODEV,
	})
	for _, e := range plan.View.Entries {
		s.entry(e)
	}
	for _, e := range plan.View.Entries { // after what is made in it
		if e.Kind == rootfs.EntryDir && e.Modified != 0 {
			s.ops = append(s.ops, forkexec.Op{Kind: forkexec.OpTimes, Target: newRoot + e.Path, Modified: e.Modified})
		}
	}
	s.generated(plan.View)
	s.system(plan)
	for i, m := range plan.View.Mounts {
		switch {
		case m.Pin:
		case m.Kind == rootfs.MountTmpfs:
			s.tmpfs(plan, m)
		default:
			s.target(m.Target, m.Dir)
			s.made.mount(m.Target)
			s.mounts[m.Target] = false
			s.bindAt(i, m, newRoot+m.Target)
			s.hide(i, m)
		}
	}
	if len(plan.Files.DenyEmpty)+len(plan.Kept.HideModules) > 0 {
		s.ops = append(s.ops, forkexec.Op{Kind: forkexec.OpFile, Target: newRoot + rootfs.EmptyFile, Flags: 0o444})
	}
	s.ops = append(s.ops, found.steps()...)
	s.seal(plan)
	s.limitsView(plan)
	if plan.Exec.Guard != nil {
		library, _ := guard.Library() // Create has seen that it is there
		s.ops = append(s.ops, forkexec.Op{Kind: forkexec.OpFile, Target: newRoot + guard.Path, Data: library, Flags: 0o444})
	}
	s.mount(forkexec.Op{Target: newRoot + "/dev", Flags: unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NOEXEC})
	s.ops = append(s.ops, forkexec.Op{Kind: forkexec.OpRoot, Target: newRoot})
	s.mount(forkexec.Op{Target: "/", Flags: unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV})
	return s.ops
}

// Network set up a network of the sandbox's own. The host's is never touched.
func Network(plan *spec.Plan, namespaces int) []forkexec.Op {
	if namespaces&unix.CLONE_NEWNET == 0 {
		return nil
	}
	return []forkexec.Op{{Kind: forkexec.OpNetwork, Flags: uintptr(plan.Exec.GID), LowPorts: plan.LowPorts}}
}

func (s *steps) mount(o forkexec.Op) {
	o.Kind = forkexec.OpMount
	s.ops = append(s.ops, o)
}

func (s *steps) entry(e rootfs.Entry) {
	o := forkexec.Op{Kind: forkexec.OpMkdir, Target: newRoot + e.Path, Flags: 0o755}
	switch e.Kind {
	case rootfs.EntrySymlink:
		o.Kind, o.Source = forkexec.OpSymlink, e.Content
	case rootfs.EntryFile:
		o.Kind, o.Data, o.Flags, o.Modified = forkexec.OpFile, e.Content, uintptr(e.Mode), e.Modified
	}
	s.ops = append(s.ops, o)
	s.made.add(e.Path)
}

// generated makes the files that are bound over the host's, outside the new root.
func (s *steps) generated(v *rootfs.View) {
	first := true
	for i, m := range v.Mounts {
		if m.Kind != rootfs.MountBind || m.Source != "" && len(m.Without) == 0 {
			continue
		}
		if first {
			s.mount(forkexec.Op{Source: "generated", Target: madeDir, Type: "tmpfs", Data: "mode=755", Flags: unix.MS_NOSUID | unix.MS_NODEV})
			first = false
		}
		if len(m.Without) > 0 {
			s.whiteouts(i, m)
			continue
		}
		s.ops = append(s.ops, forkexec.Op{Kind: forkexec.OpFile, Target: "/" + spec.GeneratedFile(i), Data: m.Content, Flags: 0o444})
	}
}

// target makes a mount's target where that is the sandbox's own root or a tmpfs. Behind a bind it exists on the host.
func (s *steps) target(at string, dir bool) {
	var missing []string
	p := at
	for ; !s.made.has(p) && !isTarget(s.mounts, p); p = path.Dir(p) {
		missing = append(missing, p)
	}
	if own, ok := s.mounts[p]; ok && !own {
		return
	}
	if !s.mounts[s.cover(p)] {
		return
	}
	for i, m0 := range slices.Backward(missing) {
		o := forkexec.Op{Kind: forkexec.OpMkdir, Target: newRoot + m0, Flags: 0o755}
		if i == 0 && !dir {
			o.Kind, o.Flags = forkexec.OpFile, 0o444
		}
		s.ops = append(s.ops, o)
		s.made.add(m0)
	}
}

func isTarget(mounts map[string]bool, p string) bool {
	_, ok := mounts[p]
	return ok
}

// cover is the target of the mount that p lies in.
func (s *steps) cover(p string) string {
	for !isTarget(s.mounts, p) {
		p = path.Dir(p)
	}
	return p
}

// system makes the mounts of every sandbox. Each exec has a /dev/pts of its own.
func (s *steps) system(plan *spec.Plan) {
	const safe = unix.MS_NOSUID | unix.MS_NOEXEC
	s.target("/proc", true)
	s.pins(plan)
	s.filesystem(forkexec.Op{Source: "proc", Target: "/proc", Type: "proc", Flags: safe | unix.MS_NODEV})
	s.target("/dev", true)
	s.filesystem(forkexec.Op{Source: "tmpfs", Target: "/dev", Type: "tmpfs", Data: "mode=755,size=64k", Flags: safe | unix.MS_STRICTATIME})
	s.devices()
	s.target("/dev/pts", true)
	s.target("/dev/shm", true)
	s.filesystem(forkexec.Op{Source: "shm", Target: "/dev/shm", Type: "tmpfs", Data: strings.Join(plan.ShmOptions(), ","), Flags: safe | unix.MS_NODEV})
}

// filesystem mounts a new file system at a target that is there.
func (s *steps) filesystem(o forkexec.Op) {
	at := o.Target
	o.Target = newRoot + at
	s.mount(o)
	s.made.mount(at)
	s.mounts[at] = o.Type == "tmpfs"
}

// tmpfs is writable until all mounts are there; see seal.
func (s *steps) tmpfs(plan *spec.Plan, m rootfs.Mount) {
	s.target(m.Target, true)
	o := tmpfs(plan, m)
	s.filesystem(forkexec.Op{Source: o.Source, Target: o.Target, Type: o.Type, Data: o.Data, Flags: o.Flags})
}

// tmpfs is the mount of a view's tmpfs, writable.
func tmpfs(plan *spec.Plan, m rootfs.Mount) forkexec.Mount {
	o := forkexec.Mount{Source: "tmpfs", Target: m.Target, Type: "tmpfs", Data: strings.Join(plan.TmpfsOptions(m), ","), Flags: unix.MS_NOSUID | unix.MS_NODEV}
	if spec.NoExec(m) { // so that no loader maps code that the program has written
		o.Flags |= unix.MS_NOEXEC
	}
	return o
}

// seal makes each tmpfs read-only that is there only for mount points in it, or to be empty: the caller's programs would own it.
func (s *steps) seal(plan *spec.Plan) {
	for _, m := range plan.View.Mounts {
		if m.Kind == rootfs.MountTmpfs && spec.ReadOnly(m) {
			s.mount(forkexec.Op{
				Target: newRoot + m.Target,
				Flags:  unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV,
			})
		}
	}
}

// bindAt binds the i-th mount of the view.
func (s *steps) bindAt(i int, m rootfs.Mount, target string) {
	if parts, ok := s.trees[i]; ok {
		for _, p := range parts {
			s.ops = append(s.ops, forkexec.Op{Kind: forkexec.OpMove, Source: path.Join(m.Source, p.Rel), Target: path.Join(target, p.Rel), Tree: p.Tree})
		}
		return
	}
	source := HostDir + m.Source
	switch {
	case m.Kind == rootfs.MountMask:
		source = "/" + spec.MaskOf(m)
	case m.Source == "":
		source = "/" + spec.GeneratedFile(i)
	}
	s.ops = append(s.ops,
		forkexec.Op{Kind: forkexec.OpBind, Source: source, Target: target},
		forkexec.Op{Kind: forkexec.OpAttr, Target: target, Flags: uintptr(idmap.Attributes(m))})
}

// devices fills /dev. Nobody in a user namespace can make device nodes: the host's are bound. A read-only mount does not keep
// anybody from writing to a device, but its owner from changing its mode, which is the host's too.
func (s *steps) devices() {
	for _, d := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		target := newRoot + "/dev/" + d
		s.ops = append(s.ops,
			forkexec.Op{Kind: forkexec.OpFile, Target: target, Flags: 0o666},
			forkexec.Op{Kind: forkexec.OpBind, Source: "/dev/" + d, Target: target},
			forkexec.Op{Kind: forkexec.OpAttr, Target: target, Flags: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC})
	}
	for link, text := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
		"ptmx": "pts/ptmx",
	} {
		s.ops = append(s.ops, forkexec.Op{Kind: forkexec.OpSymlink, Source: text, Target: newRoot + "/dev/" + link})
	}
}

// Explain distinguishes a fault of the policy from one of the machine.
func Explain(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) {
		return fault.New(fault.GrantMissing, "did it change while the sandbox was made?", "create sandbox: %w", err)
	}
	if diagnose.RefusedProcess(err) {
		return fault.New(fault.LimitReached, diagnose.ProcessesHint, "create sandbox: no more processes can be started: %w", err)
	}
	if d := diagnose.Machine(); d != nil {
		return d
	}
	return fault.New(fault.SandboxUnavailable, "", "create sandbox: %w", err)
}
