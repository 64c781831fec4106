// Package views makes of a spec.Extra, which is decided, the steps by which one exec sees more than others of its sandbox, or less. It
// owns these steps: copies of mounts that are opened outside, mount points that no other exec can find, masks, and what the program
// looks at before it is executed.
//
// A mount needs something to be mounted on. Where that is missing nothing is made, neither on the host nor in a file system that other
// execs see: a new file system in memory covers the directory around it for this exec alone, and shows again what is in that directory.
// In what only the launcher writes nobody sees a difference. In a file system in memory that programs write, new files in the covered
// directory itself are the exec's own, and a warning says so. In a directory of the host it would lose what the program makes, and is refused.
//
// It may import spec, rootfs, forkexec, idmap, lookup and fault.
package views

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/idmap"
	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Sandbox is what is to be known of a sandbox.
type Sandbox struct {
	Init     *os.File    // pidfd of its process 1
	In       lookup.Root // its root
	UID, GID int         // of its programs, in its user namespace
	HostUID  int         // and on the host
	HostGID  int
}

// Shown is what one exec is started with.
type Shown struct {
	forkexec.Extra
	Tmpfs    []string // mount points of file systems in memory that were added
	Warnings []string
}

// maker collects steps.
type maker struct {
	Sandbox
	x     *spec.Extra
	cover rootfs.ByTarget
	out   *Shown
}

// Show opens what the exec is to see. The caller closes it when the exec has been started.
func (sb Sandbox) Show(x *spec.Extra) (_ *Shown, err error) {
	m := &maker{sb, x, x.After.ByTarget(), &Shown{Warnings: x.Warnings}}
	defer func() {
		if err != nil {
			m.out.Close()
		}
	}()
	again := m.hold()
	if err := m.points(); err != nil {
		return nil, err
	}
	if err := m.attach(again); err != nil {
		return nil, err
	}
	for _, k := range x.Mounts {
		if k.Kind == rootfs.MountMask {
			m.mask(k)
		}
	}
	for _, k := range x.Masked {
		m.out.Checks = append(m.out.Checks, forkexec.ViewCheck{Path: k.Target, Denied: true, Empty: k.Empty})
	}
	return m.out, nil
}

func (m *maker) step(s forkexec.ViewStep) int {
	m.out.Steps = append(m.out.Steps, s)
	return len(m.out.Steps) - 1
}

// hold copies the sandbox's mounts that what is new would hide, and says which step is to copy which.
func (m *maker) hold() map[string]int {
	held := map[string]int{}
	for _, target := range m.x.Again {
		held[target] = m.step(forkexec.ViewStep{Kind: forkexec.ViewHold, Target: target})
	}
	return held
}

// attach puts copies of mounts in place, parents first.
func (m *maker) attach(held map[string]int) error {
	mounts := slices.DeleteFunc(slices.Clone(m.x.Mounts), func(k rootfs.Mount) bool { return k.Kind == rootfs.MountMask })
	trees, err := m.trees(mounts)
	if err != nil {
		return err
	}
	for target := range held {
		mounts = append(mounts, rootfs.Mount{Target: target})
	}
	slices.SortStableFunc(mounts, func(a, b rootfs.Mount) int {
		return cmp.Or(cmp.Compare(strings.Count(a.Target, "/"), strings.Count(b.Target, "/")), cmp.Compare(a.Target, b.Target))
	})
	for _, k := range mounts {
		if k.Kind == "" {
			m.out.Steps[held[k.Target]].For = m.step(forkexec.ViewStep{Kind: forkexec.ViewAttach, Target: k.Target})
			continue
		}
		for _, p := range trees[k.Target] {
			m.step(forkexec.ViewStep{Kind: forkexec.ViewAttach, Target: path.Join(k.Target, p.Rel), Tree: p.Tree})
		}
		if err := m.checkShown(k, trees[k.Target][0].Tree); err != nil {
			return err
		}
	}
	return nil
}

// checkShown has the program look whether it sees what was opened.
func (m *maker) checkShown(k rootfs.Mount, tree *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(tree.Fd()), &st); err != nil {
		return fault.New(fault.GrantMissing, "", "look at %q: %w", k.Source, err)
	}
	if !m.hidden(k.Target) {
		m.out.Checks = append(m.out.Checks, forkexec.ViewCheck{Path: k.Target, Dev: st.Dev, Ino: st.Ino, Writable: k.Writable})
	}
	return nil
}

// hidden reports whether a mask lies on a path or above it.
func (m *maker) hidden(target string) bool {
	k := m.cover.Cover(target)
	return k != nil && k.Kind == rootfs.MountMask
}

// trees copies mounts of the host: as the machine's root with the attributes of each, else in the sandbox's user namespace.
func (m *maker) trees(mounts []rootfs.Mount) (map[string][]idmap.Part, error) {
	trees := map[string][]idmap.Part{}
	var rest []rootfs.Mount
	for _, k := range mounts {
		if k.Kind != rootfs.MountBind || k.Source == "" {
			closeAll(trees)
			return nil, fault.New(fault.ViewTarget, "grant it in the policy instead", "%s: %q cannot be made for one exec alone", k.From, k.Target)
		}
		if os.Geteuid() != 0 {
			rest = append(rest, k)
			continue
		}
		parts, err := idmap.OpenGrant(m.grant(k), func(string) bool { return false })
		switch {
		case errors.Is(err, unix.EPERM) && !k.Idmapped: // root, but of a container
			rest = append(rest, k)
		case err != nil:
			closeAll(trees)
			return nil, fault.New(fault.GrantMissing, "did it change just now?", "open %q: %w", k.Source, err)
		default:
			trees[k.Target] = parts
		}
	}
	return trees, m.copied(trees, rest)
}

func closeAll(trees map[string][]idmap.Part) {
	for _, parts := range trees {
		idmap.Close(parts)
	}
}

// copied adds those that the launcher may not copy by itself.
func (m *maker) copied(trees map[string][]idmap.Part, rest []rootfs.Mount) error {
	for _, writable := range []bool{false, true} {
		some := slices.DeleteFunc(slices.Clone(rest), func(k rootfs.Mount) bool { return k.Writable != writable })
		paths := make([]string, len(some))
		for i, k := range some {
			paths[i] = k.Source
		}
		attributes := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_RDONLY)
		if writable {
			attributes &^= unix.MOUNT_ATTR_RDONLY
		}
		list, failed, err := forkexec.CopyTrees(m.Init, paths, attributes)
		if err != nil {
			closeAll(trees)
			return fault.New(fault.GrantMissing, "did it change just now?", "open %q: %w", failed, err)
		}
		for i, f := range list {
			trees[some[i].Target] = []idmap.Part{{Tree: f, Rel: "."}}
		}
	}
	return nil
}

// grant is a bind as package idmap takes it.
func (m *maker) grant(k rootfs.Mount) idmap.Grant {
	g := idmap.Grant{Source: k.Source, Attributes: idmap.Attributes(k)}
	if k.Idmapped {
		g.UIDs = spec.Exchange(uint32(os.Geteuid()), uint32(m.HostUID))
		g.GIDs = spec.Exchange(uint32(os.Getegid()), uint32(m.HostGID))
	}
	return g
}

func (m *maker) mask(k rootfs.Mount) {
	const safe = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	s := forkexec.ViewStep{Kind: forkexec.ViewMaskFile, Source: "/dev/null", Target: k.Target, Attributes: safe}
	switch {
	case k.Dir && k.Empty:
		s.Kind, s.Source = forkexec.ViewMaskDir, "mode=0555,nr_inodes=2,size=4k"
	case k.Dir:
		s.Kind, s.Source = forkexec.ViewMaskDir, "mode=0,nr_inodes=2,size=4k"
	case k.Empty:
		s.Source = rootfs.EmptyFile
	}
	m.step(s)
}

// open opens a path of the sandbox of which no part is a link.
func (m *maker) open(name string, flags uint64) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   flags | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(m.In.FD, name, &how)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// kindOf says what is at a path of the sandbox; an error that is fs.ErrNotExist: nothing.
func (m *maker) kindOf(name string) (fs.FileMode, error) {
	f, err := m.open(name, unix.O_PATH)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return 0, fmt.Errorf("%w: a part of it is no directory", err)
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Mode().Type(), nil
}
