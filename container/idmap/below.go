package idmap

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/spec"
)

// A grant is one tree of mounts, and the kernel idmaps a tree whole or not at all. Where something mounted below a grant cannot be
// idmapped, each mount is copied and idmapped on its own, and that one is left out.

// Part is a copy of one mount of a grant.
type Part struct {
	Tree *os.File
	Rel  string // its mount point, relative to the grant; "." is the grant itself
}

// Close closes copies that are not wanted, or have been handed on.
func Close(parts []Part) {
	for _, p := range parts {
		p.Tree.Close()
	}
}

// OpenGrant copies what is mounted at m.Source and below it, in one piece where the kernel allows that. What covered says of is not
// shown, and is left out if that cannot be.
func OpenGrant(m Grant, covered func(path string) bool) ([]Part, error) {
	tree, err := openTree(m)
	if err == nil {
		return []Part{{tree, "."}}, nil
	}
	if !errors.Is(err, errRefused) {
		return nil, err
	}
	parts, left, err := openParts(m, covered)
	if err == nil && len(left) > 0 {
		Close(parts)
		return nil, fmt.Errorf("%q has been mounted: %s", left[0].Path, left[0].Why)
	}
	return parts, err
}

// answerWithin is how long the file systems below a grant have, all together, to say where they are mounted. One in memory or on a disk takes
// microseconds; a dead server never answers.
const answerWithin = time.Second

// openParts copies what is mounted at m.Source and below it, parents first. What cannot be idmapped below is left out. That includes
// all of which leave says so, which is not touched.
func openParts(m Grant, leave func(path string) bool) (parts []Part, left []spec.LeftOut, err error) {
	mounts, err := mountsBelow(m.Source)
	if err != nil {
		return nil, nil, err
	}
	top, err := clone(m, 0)
	if errors.Is(err, unix.EINVAL) && !errors.Is(err, errRefused) { // a mount below is locked: what it covers may not be seen
		err = fmt.Errorf("%w: %w", errRefused, err)
	}
	if err != nil {
		return nil, nil, err
	}
	parts = []Part{{top, "."}}
	mounts = slices.DeleteFunc(mounts, func(l hostfs.Mount) bool { return leave(l.Target) })
	for _, o := range openAll(m, mounts) {
		rel, _ := filepath.Rel(m.Source, o.Target)
		switch {
		case slices.ContainsFunc(left, func(l spec.LeftOut) bool { return pathname.Within(o.Target, l.Path) }):
			o.close()
		case o.err == nil:
			parts = append(parts, Part{o.tree, rel})
		default:
			left = append(left, spec.LeftOut{Path: o.Target, Dir: onDirectory(parts, rel), Why: o.why()})
		}
	}
	return parts, left, nil
}

// mountsBelow lists what is mounted below a directory and not hidden by another mount, parents first.
func mountsBelow(dir string) ([]hostfs.Mount, error) {
	mounts, err := hostfs.OwnMounts()
	if err != nil {
		return nil, err
	}
	byID := map[int]hostfs.Mount{}
	for _, l := range mounts {
		byID[l.ID] = l
	}
	list := slices.DeleteFunc(slices.Clone(mounts), func(l hostfs.Mount) bool {
		return l.Target == dir || !pathname.Within(l.Target, dir) || strings.HasSuffix(l.Target, "//deleted") || hidden(l, mounts, byID)
	})
	slices.SortFunc(list, func(a, b hostfs.Mount) int { return cmp.Compare(a.Target, b.Target) })
	return list, nil
}

// hidden reports whether a mount has another one over it, or over a directory on the way to it.
func hidden(l hostfs.Mount, mounts []hostfs.Mount, byID map[int]hostfs.Mount) bool {
	on, way := l, []int{l.ID}
	for range mounts { // the way up ends, at a mount whose parent cannot be seen
		if slices.ContainsFunc(mounts, func(n hostfs.Mount) bool {
			return n.Parent == on.ID && n.Target == on.Target && !slices.Contains(way, n.ID)
		}) {
			return true
		}
		up, ok := byID[on.Parent]
		if !ok || up.ID == on.ID {
			return false
		}
		if slices.ContainsFunc(mounts, func(n hostfs.Mount) bool {
			return n.Parent == up.ID && n.Target != on.Target && n.Target != up.Target && pathname.Within(on.Target, n.Target)
		}) {
			return true
		}
		on, way = up, append(way, up.ID)
	}
	return false
}

// opened is what came of one mount.
type opened struct {
	hostfs.Mount
	tree *os.File
	err  error
}

func (o opened) close() {
	if o.tree != nil {
		o.tree.Close()
	}
}

// openAll copies mounts, all at once: one that does not answer must not hold up the others.
func openAll(m Grant, mounts []hostfs.Mount) []opened {
	type answer struct {
		i int
		opened
	}
	list, answers := make([]opened, len(mounts)), make(chan answer, len(mounts))
	for i, l := range mounts {
		list[i] = opened{Mount: l, err: errSilent}
		one := m
		one.Source = l.Target
		go func() {
			tree, err := clone(one, 0)
			answers <- answer{i, opened{l, tree, err}}
		}()
	}
	timeout := time.After(answerWithin)
	for missing := len(mounts); missing > 0; missing-- {
		select {
		case a := <-answers:
			list[a.i] = a.opened
		case <-timeout:
			go func() {
				for range missing {
					(<-answers).close()
				}
			}()
			return list
		}
	}
	return list
}

var errSilent = errors.New("its file system does not answer")

// why says why a mount is left out.
func (o opened) why() string {
	switch {
	case errors.Is(o.err, errSilent):
		return fmt.Sprintf("%v (%s)", o.err, o.Kind)
	case errors.Is(o.err, errRefused) && errors.Is(o.err, unix.EINVAL):
		return fmt.Sprintf("its file system (%s) cannot be idmapped on this kernel", o.Kind)
	case errors.Is(o.err, errRefused) && errors.Is(o.err, unix.EPERM):
		return "it is idmapped already, or its file system belongs to another user namespace"
	}
	return fmt.Sprintf("it cannot be opened: %v", o.err)
}

// onDirectory reports whether what a mount covers is a directory: that is seen in the copy of the mount around it, which answers.
func onDirectory(parts []Part, rel string) bool {
	around := parts[0]
	for _, p := range parts {
		if pathname.Within("/"+rel, path.Join("/", p.Rel)) && len(p.Rel) >= len(around.Rel) {
			around = p
		}
	}
	name, _ := filepath.Rel(around.Rel, rel)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(int(around.Tree.Fd()), name, &how)
	if err != nil {
		return true // it has gone, and building says so
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR
}
