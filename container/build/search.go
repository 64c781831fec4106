package build

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Two kinds of files need more than the mount that shows them, and only a look at each file finds them:
//   - A set-id file, or one with capabilities, in a writable grant. The kernel takes the bit away when the file is written, but not
//     when it is changed through a shared mapping. So the file is mounted read-only, over itself.
//   - A FIFO in a read-only grant: a read-only mount does not keep anybody from writing to it. So it is masked.
//
// The walk goes on while libcontainer makes the namespaces, and is bounded.
const (
	lookMost  = 10_000 // directory entries that are looked at
	lookDepth = 100
	lookFound = 500 // files that get a mount of their own
)

// Found is what was found.
type Found struct {
	readOnly []string // paths inside that are to be read-only
	masked   []string // paths inside of FIFOs
	more     []string // writable grants that were not searched to the end
	entries  int
	most     int // of entries
	view     *rootfs.View
	remote   []string // mount points of the host whose file systems may not answer
	cover    rootfs.ByTarget
}

// Search begins to search the grants of a plan. The result comes through the channel.
func Search(plan *spec.Plan) <-chan *Found {
	done := make(chan *Found, 1)
	go func() {
		s := &Found{view: plan.View, cover: plan.View.ByTarget(), remote: remoteMounts()}
		for i, g := range plan.Search {
			s.most = s.entries + (lookMost-s.entries)/(len(plan.Search)-i) // a large grant must not hide all others
			s.grant(g)
		}
		done <- s
	}()
	return done
}

// Await waits for it, but not for ever: a grant may have a network file system in it that does not answer.
func Await(done <-chan *Found, plan *spec.Plan) *Found {
	select {
	case s := <-done:
		return s
	case <-time.After(5 * time.Second):
	}
	s := &Found{}
	for _, g := range plan.Search {
		if g.Writable {
			s.more = append(s.more, g.Source)
		}
	}
	return s
}

func (s *Found) grant(g spec.Search) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(unix.AT_FDCWD, g.Source, &how)
	if err != nil {
		return // a file; or it has gone, and building says so
	}
	l := &searcher{Found: s, elsewhere: targets(s.view), writable: g.Writable, source: g.Source, target: g.Target, euid: os.Geteuid()}
	l.directory(fd, "", 0)
	unix.Close(fd)
	if l.cut && g.Writable {
		s.more = append(s.more, g.Source)
	}
}

// targets are the paths in a view that something else than the host's files covers.
func targets(v *rootfs.View) map[string]bool {
	list := map[string]bool{}
	for _, m := range v.Mounts {
		list[m.Target] = m.Kind != rootfs.MountBind
	}
	return list
}

// searcher walks one grant. No link is followed; a directory is only ever reached through its parent's descriptor.
type searcher struct {
	*Found
	elsewhere      map[string]bool
	writable       bool
	source, target string
	euid           int
	cut            bool // not all was looked at
}

func (l *searcher) directory(fd int, rel string, depth int) {
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil || n == 0 {
			return
		}
		for d, rest := hostfs.NextDirent(buf[:n]); d.Name != ""; d, rest = hostfs.NextDirent(rest) {
			if l.entries++; l.entries > l.most {
				l.cut = true
				return
			}
			l.entry(fd, d.Kind, d.Name, path.Join(rel, d.Name), depth)
		}
	}
}

func (l *searcher) entry(dir int, kind byte, name, rel string, depth int) {
	var st unix.Stat_t
	if (kind == unix.DT_DIR || kind == unix.DT_UNKNOWN) && l.elsewhere[path.Join(l.target, rel)] {
		return // it is not the host's that is shown there, which may not answer
	}
	if kind == unix.DT_UNKNOWN || kind == unix.DT_REG && l.writable {
		if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return
		}
		kind = byte(st.Mode & unix.S_IFMT >> 12)
	}
	switch {
	case kind == unix.DT_DIR && depth == lookDepth:
		l.cut = true
	case kind == unix.DT_DIR && l.silent(rel):
		l.cut = true
	case kind == unix.DT_DIR:
		l.enter(dir, name, rel, depth)
	case kind == unix.DT_FIFO && !l.writable:
		l.masked = l.note(l.masked, rel)
	case kind == unix.DT_REG && l.writable && l.privileged(dir, name, &st):
		l.readOnly = l.note(l.readOnly, rel)
	}
}

// answerWithin is how long a mount point of the host has for a first look.
const answerWithin = time.Second

// silent reports whether a directory is a mount point whose file system does not answer.
func (l *searcher) silent(rel string) bool {
	at := filepath.Join(l.source, rel)
	if len(l.remote) == 0 || !slices.Contains(l.remote, at) {
		return false
	}
	done := make(chan struct{})
	go func() {
		if f, err := os.Open(at); err == nil {
			_, _ = f.Readdirnames(1)
			f.Close()
		}
		close(done)
	}()
	select {
	case <-done:
		return false
	case <-time.After(answerWithin):
		return true
	}
}

func remoteMounts() []string {
	mounts, _ := hostfs.OwnMounts() // without them the whole look still has an end
	var list []string
	for _, m := range mounts {
		if hostfs.MayBeSilent(m.Kind) {
			list = append(list, m.Target)
		}
	}
	return list
}

func (l *searcher) enter(dir int, name, rel string, depth int) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) && l.writable {
		// A program could open it again, if it belongs to the program's user, and use what an earlier one has hidden in it.
		var st unix.Stat_t
		if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && int(st.Uid) == l.euid {
			l.readOnly = l.note(l.readOnly, rel)
		}
		return
	}
	if err != nil {
		l.cut = l.cut || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EACCES)
		return
	}
	l.directory(fd, rel, depth+1)
	unix.Close(fd)
}

// privileged reports whether execve gives something for a file that a program could change: it is its user's own, or others may
// write it.
func (l *searcher) privileged(dir int, name string, st *unix.Stat_t) bool {
	if int(st.Uid) != l.euid && st.Mode&0o022 == 0 {
		return false
	}
	if st.Mode&unix.S_ISUID != 0 || st.Mode&(unix.S_ISGID|0o010) == unix.S_ISGID|0o010 {
		return true
	}
	if st.Mode&0o111 == 0 {
		return false
	}
	var buf [64]byte
	n, err := unix.Lgetxattr(fmt.Sprintf("/proc/self/fd/%d/%s", dir, name), "security.capability", buf[:])
	return err == nil && n > 0
}

// note adds a path unless another mount covers it.
func (l *searcher) note(list []string, rel string) []string {
	inside := path.Join(l.target, rel)
	m := l.cover.Cover(inside)
	if m == nil || m.Writable != l.writable || l.cover.HostPath(inside) != filepath.Join(l.source, rel) || l.hidden(inside) {
		return list
	}
	if len(list) == lookFound {
		l.cut = true
		return list
	}
	return append(list, inside)
}

// hidden reports whether a mask covers a path, or a mount is there already.
func (l *searcher) hidden(inside string) bool {
	if l.view.HasGone(inside) {
		return true
	}
	for _, m := range l.view.Mounts {
		if m.Target == inside || m.Kind == rootfs.MountMask && strings.HasPrefix(inside, m.Target+"/") {
			return true
		}
	}
	return false
}

// steps mounts what was found. It stands after all mounts of the view: what is bound is what the view shows.
func (s *Found) steps() []forkexec.Op {
	var ops []forkexec.Op
	for _, p := range s.readOnly {
		ops = append(ops,
			forkexec.Op{Kind: forkexec.OpBind, Source: newRoot + p, Target: newRoot + p},
			forkexec.Op{Kind: forkexec.OpAttr, Target: newRoot + p, Flags: unix.MOUNT_ATTR_RDONLY})
	}
	for _, p := range s.masked {
		ops = append(ops,
			forkexec.Op{Kind: forkexec.OpBind, Source: "/" + spec.MaskFile, Target: newRoot + p},
			forkexec.Op{
				Kind: forkexec.OpAttr, Target: newRoot + p,
				Flags: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC,
			})
	}
	return ops
}

// Warnings says what the user has to know of it.
func (s *Found) Warnings() []string {
	const most = 5
	var said []string
	for i, p := range s.masked {
		if i == most {
			said = append(said, fmt.Sprintf("files: and %d more named pipes", len(s.masked)-most))
			break
		}
		said = append(said, fmt.Sprintf("files: %s is hidden: a program could write to a named pipe in a read-only grant; files.write = [its path] grants it", p))
	}
	for _, g := range s.more {
		said = append(said, fmt.Sprintf("files: %q was not searched to the end: set-user-ID files in the rest of it keep their mode when a program changes them", g))
	}
	return said
}
