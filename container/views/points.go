package views

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// This file makes the mount points, and links, that are missing.

const (
	mostEntries = 1000 // of a directory that is covered: each is mounted again
	coverSize   = 256 << 20
	coverInodes = 65536
)

// point is something that is missing.
type point struct {
	name string
	dir  bool
	link string // its text, if it is a link
	from string
}

// points covers each directory in which something is missing.
func (m *maker) points() error {
	missing := map[string][]point{} // by the directory
	for _, p := range m.wanted() {
		dir, err := m.nearest(p)
		if err != nil {
			return err
		}
		if dir != "" {
			missing[dir] = append(missing[dir], p)
		}
	}
	for _, d := range slices.SortedFunc(maps.Keys(missing), func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }) {
		if err := m.coverDir(d, missing[d]); err != nil {
			return err
		}
	}
	return nil
}

// wanted are all mount points and links, but for those that something else brings which is mounted.
func (m *maker) wanted() []point {
	var list []point
	add := func(p point) {
		if !slices.ContainsFunc(list, func(o point) bool { return o.link == "" && pathname.Within(p.name, o.name) }) {
			list = append(list, p)
		}
	}
	for _, k := range m.x.Mounts {
		if k.Kind != rootfs.MountMask {
			add(point{name: k.Target, dir: k.Dir, from: k.From})
		}
	}
	for _, l := range m.x.Links {
		add(point{name: l.Path, link: l.Content, from: l.Path})
	}
	return list
}

// nearest is the directory around what is missing; empty if nothing is.
func (m *maker) nearest(p point) (string, error) {
	fresh := m.freshAround(p.name)
	for at := p.name; ; at = path.Dir(at) {
		if at == fresh {
			return pick(at != p.name, at), nil
		}
		kind, err := fs.FileMode(0), fs.ErrNotExist
		if fresh == "" {
			kind, err = m.kindOf(at)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", fault.New(fault.ViewTarget, "choose another target", "%s: look for %q inside: %w", p.from, p.name, err)
		case at != p.name && !kind.IsDir(), at == p.name && p.link == "" && kind.IsDir() != p.dir:
			return "", fault.New(fault.ViewTarget, "choose another target", "%s: %q cannot be shown: what is at %q inside is of another kind", p.from, p.name, at)
		}
		return pick(at != p.name, at), nil
	}
}

func pick(yes bool, s string) string {
	if yes {
		return s
	}
	return ""
}

// freshAround is the mount that the exec has for itself around a path, or empty.
func (m *maker) freshAround(name string) string {
	if k := m.cover.Cover(path.Dir(name)); k != nil && k.PerExec {
		return k.Target
	}
	if k := m.cover.Cover(name); k != nil && k.PerExec {
		return k.Target
	}
	return ""
}

// coverDir covers a directory by one that also has what is missing.
func (m *maker) coverDir(dir string, missing []point) error {
	around := m.cover.Cover(dir)
	fresh := around != nil && around.PerExec
	f, err := m.open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		return fault.New(fault.ViewTarget, "choose another target", "%s: read %q inside: %w", missing[0].from, dir, err)
	}
	defer f.Close()
	var on unix.Statfs_t
	var st unix.Stat_t
	if err := errors.Join(unix.Fstatfs(int(f.Fd()), &on), unix.Fstat(int(f.Fd()), &st)); err != nil {
		return fault.New(fault.ViewTarget, "", "%s: look at %q inside: %w", missing[0].from, dir, err)
	}
	readOnly := on.Flags&unix.ST_RDONLY != 0 && !fresh
	if !readOnly && (around == nil || around.Kind != rootfs.MountTmpfs) {
		return fault.New(fault.ViewTarget, "let something be there, which it is mounted on: no file is ever made on the host; or choose another target",
			"%s: nothing is at %q inside, and programs can write in %q", missing[0].from, missing[0].name, dir)
	}
	m.step(forkexec.ViewStep{Kind: forkexec.ViewCover, Target: dir, Source: m.options(&st)})
	there := map[string]bool{} // a missing path may begin with these
	if fresh {
		there = m.againMounts(dir)
	} else if err := m.againAll(f, dir, missing[0]); err != nil {
		return err
	}
	m.makePoints(dir, missing, there)
	attributes := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
	if on.Flags&unix.ST_NOEXEC != 0 {
		attributes |= unix.MOUNT_ATTR_NOEXEC
	}
	if readOnly {
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	m.step(forkexec.ViewStep{Kind: forkexec.ViewCovered, Target: dir, Attributes: attributes})
	m.out.Tmpfs = append(m.out.Tmpfs, dir)
	m.linksAgain(dir)
	if !readOnly && !fresh {
		m.out.Warnings = append(m.out.Warnings, fmt.Sprintf("%s: new files in %q itself are this exec's own and gone after it: nothing was at %q for others to see",
			missing[0].from, dir, missing[0].name))
	}
	return nil
}

// againAll shows what is in a directory that is covered.
func (m *maker) againAll(f *os.File, dir string, p point) error {
	names, err := f.Readdirnames(mostEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return fault.New(fault.ViewTarget, "choose another target", "%s: read %q inside: %w", p.from, dir, err)
	}
	if len(names) > mostEntries {
		return fault.New(fault.ViewTarget, "choose another target", "%s: %q cannot be shown in %q, which has more than %d entries", p.from, p.name, dir, mostEntries)
	}
	slices.Sort(names) // one that is renamed meanwhile may be listed twice
	for _, name := range slices.Compact(names) {
		m.again(int(f.Fd()), name)
	}
	return nil
}

// linksAgain hides where links lead that were made anew.
func (m *maker) linksAgain(dir string) {
	for _, k := range m.x.After.Mounts {
		if k.Kind == rootfs.MountMask && k.Link && path.Dir(k.Target) == dir {
			m.mask(k)
		}
	}
}

// options are those of a tmpfs whose root is like the directory that it covers.
func (m *maker) options(st *unix.Stat_t) string {
	uid, gid := 0, 0
	if int(st.Uid) == m.HostUID {
		uid, gid = m.UID, m.GID
	}
	return fmt.Sprintf("mode=%#o,uid=%d,gid=%d,size=%d,nr_inodes=%d", st.Mode&0o7777, uid, gid, coverSize, coverInodes)
}

// again shows one entry of a directory that is covered. One that has gone has gone.
func (m *maker) again(dir int, entry string) {
	var st unix.Stat_t
	if unix.Fstatat(dir, entry, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return
	}
	kind := forkexec.ViewFile
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		kind = forkexec.ViewDir
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		if n, err := unix.Readlinkat(dir, entry, buf); err == nil {
			m.step(forkexec.ViewStep{Kind: forkexec.ViewLink, Target: entry, Source: string(buf[:n])})
		}
		return
	}
	m.step(forkexec.ViewStep{Kind: kind, Target: entry})
	m.step(forkexec.ViewStep{Kind: forkexec.ViewAgain, Target: entry})
}

// againMounts shows what the sandbox has mounted in a directory that the exec has for itself: nothing else is in that yet. It says which
// directories on the way to mounts it has shown: they are the exec's own too.
func (m *maker) againMounts(dir string) map[string]bool {
	ways := map[string]bool{}
	seen := map[string]bool{}
	for _, k := range m.x.After.Mounts {
		if k.Pin || k.Target == dir || !pathname.Within(k.Target, dir) || slices.ContainsFunc(m.x.Mounts, func(n rootfs.Mount) bool { return n.Target == k.Target }) {
			continue
		}
		rel := strings.TrimPrefix(k.Target, dir+"/")
		for up := path.Dir(rel); up != "."; up = path.Dir(up) {
			ways[up] = true
		}
		entry, below, _ := strings.Cut(rel, "/")
		if seen[entry] {
			continue
		}
		seen[entry] = true
		kind := forkexec.ViewFile
		if below != "" || k.Dir {
			kind = forkexec.ViewDir
		}
		m.step(forkexec.ViewStep{Kind: kind, Target: entry})
		m.step(forkexec.ViewStep{Kind: forkexec.ViewAgain, Target: entry})
	}
	return ways
}

// makePoints makes what is missing, with the directories on the way.
func (m *maker) makePoints(dir string, missing []point, there map[string]bool) {
	made := map[string]bool{}
	for _, p := range missing {
		rel := strings.TrimPrefix(strings.TrimPrefix(p.name, dir), "/")
		parts := strings.Split(rel, "/")
		for i := 1; i < len(parts); i++ {
			if up := strings.Join(parts[:i], "/"); !made[up] && !there[up] {
				made[up] = true
				m.step(forkexec.ViewStep{Kind: forkexec.ViewDir, Target: up})
			}
		}
		if made[rel] {
			continue
		}
		made[rel] = true
		s := forkexec.ViewStep{Kind: forkexec.ViewFile, Target: rel}
		switch {
		case p.link != "":
			s.Kind, s.Source = forkexec.ViewLink, p.link
		case p.dir:
			s.Kind = forkexec.ViewDir
		}
		m.step(s)
	}
}
