package container

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/spec"
)

// A grant is one tree of mounts, and the kernel idmaps a tree whole or not at all. Where something mounted below a grant cannot be
// idmapped, each mount is copied and idmapped on its own, and that one is left out.

// part is a copy of one mount of a grant.
type part struct {
	tree *os.File
	rel  string // its mount point, relative to the grant; "." is the grant itself
}

// answerWithin is how long the file systems below a grant have, all together, to say where they are mounted. One in memory or on a disk takes
// microseconds; a dead server never answers.
const answerWithin = time.Second

// openParts copies what is mounted at m.Source and below it, parents first. What cannot be idmapped below is left out. That includes
// all of which leave says so, which is not touched.
func openParts(m specs.Mount, leave func(path string) bool) (parts []part, left []spec.LeftOut, err error) {
	mounts, err := mountsBelow(m.Source)
	if err != nil {
		return nil, nil, err
	}
	top, err := openOne(m)
	if errors.Is(err, unix.EINVAL) && !errors.Is(err, errIdmap) { // a mount below is locked: what it covers may not be seen
		err = fmt.Errorf("%w: %w", errIdmap, err)
	}
	if err != nil {
		return nil, nil, err
	}
	parts = []part{{top, "."}}
	mounts = slices.DeleteFunc(mounts, func(l mountLine) bool { return leave(l.target) })
	for _, o := range openAll(m, mounts) {
		rel, _ := filepath.Rel(m.Source, o.target)
		switch {
		case slices.ContainsFunc(left, func(l spec.LeftOut) bool { return within(o.target, l.Path) }):
			o.close()
		case o.err == nil:
			parts = append(parts, part{o.tree, rel})
		default:
			left = append(left, spec.LeftOut{Path: o.target, Dir: onDirectory(parts, rel), Why: o.why()})
		}
	}
	return parts, left, nil
}

// mountsBelow lists what is mounted below a directory and not hidden by another mount, parents first.
func mountsBelow(dir string) ([]mountLine, error) {
	mounts, err := ownMounts()
	if err != nil {
		return nil, err
	}
	byID := map[int]mountLine{}
	for _, l := range mounts {
		byID[l.id] = l
	}
	list := slices.DeleteFunc(slices.Clone(mounts), func(l mountLine) bool {
		return l.target == dir || !within(l.target, dir) || strings.HasSuffix(l.target, "//deleted") || hidden(l, mounts, byID)
	})
	slices.SortFunc(list, func(a, b mountLine) int { return cmp.Compare(a.target, b.target) })
	return list, nil
}

// hidden says whether a mount has another one over it, or over a directory on the way to it.
func hidden(l mountLine, mounts []mountLine, byID map[int]mountLine) bool {
	on, way := l, []int{l.id}
	for range mounts { // the way up ends, at a mount whose parent cannot be seen
		if slices.ContainsFunc(mounts, func(n mountLine) bool {
			return n.parent == on.id && n.target == on.target && !slices.Contains(way, n.id)
		}) {
			return true
		}
		up, ok := byID[on.parent]
		if !ok || up.id == on.id {
			return false
		}
		if slices.ContainsFunc(mounts, func(n mountLine) bool {
			return n.parent == up.id && n.target != on.target && n.target != up.target && within(on.target, n.target)
		}) {
			return true
		}
		on, way = up, append(way, up.id)
	}
	return false
}

// opened is what came of one mount.
type opened struct {
	mountLine
	tree *os.File
	err  error
}

func (o opened) close() {
	if o.tree != nil {
		o.tree.Close()
	}
}

// openAll copies mounts, all at once: one that does not answer must not hold up the others.
func openAll(m specs.Mount, mounts []mountLine) []opened {
	type answer struct {
		i int
		opened
	}
	list, answers := make([]opened, len(mounts)), make(chan answer, len(mounts))
	for i, l := range mounts {
		list[i] = opened{mountLine: l, err: errSilent}
		one := m
		one.Source = l.target
		go func() {
			tree, err := openOne(one)
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
		return fmt.Sprintf("%v (%s)", o.err, o.kind)
	case errors.Is(o.err, errIdmap) && errors.Is(o.err, unix.EINVAL):
		return fmt.Sprintf("its file system (%s) cannot be idmapped on this kernel", o.kind)
	case errors.Is(o.err, errIdmap) && errors.Is(o.err, unix.EPERM):
		return "it is idmapped already, or its file system belongs to another user namespace"
	}
	return fmt.Sprintf("it cannot be opened: %v", o.err)
}

// onDirectory says whether what a mount covers is a directory: that is seen in the copy of the mount around it, which answers.
func onDirectory(parts []part, rel string) bool {
	around := parts[0]
	for _, p := range parts {
		if within(rel, p.rel) && len(p.rel) >= len(around.rel) {
			around = p
		}
	}
	name, _ := filepath.Rel(around.rel, rel)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(int(around.tree.Fd()), name, &how)
	if err != nil {
		return true // it has gone, and building says so
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR
}

func openOne(m specs.Mount) (*os.File, error) { return cloneTree(m, 0) }
