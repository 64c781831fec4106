package disk

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

const (
	tick    = 50 * time.Millisecond // between two looks
	minTick = 5 * time.Millisecond
	fastest = 8 << 30 // bytes a second that a program may begin to write at any time: memory takes them

	walkShare = 10          // of what time passes, this part (one in ...) may be spent walking
	burst     = time.Second // what may be saved up of it
	maxAge    = time.Second // a walk is never believed for longer than this, or 20 times what it took
	cheapWalk = 20 * time.Millisecond

	maxWalk    = 30 * time.Second // for those that make more files than we can look at
	leastGrace = time.Second      // what free space says counts for so long without a walk, and three times the first walk
	mostOpen   = 32               // directories open at a time
	mostLevels = 1 << 18          // levels; 80 bytes each
	mostLinked = 1 << 19          // inodes with several names that are remembered
)

// Use is what the writable grants take at a moment.
type Use struct {
	Bytes      int64         `json:"bytes"`
	Incomplete bool          `json:"incomplete,omitempty"` // something could not be read
	Free       []int64       `json:"free,omitempty"`       // of each file system, before it was read
	Took       time.Duration `json:"took,omitempty"`
}

// Measure adds up what is in host directories and files. Their paths must hold no links, as those of a Plan do. What
// is in two of them, or has two names, counts once.
func Measure(paths []string) Use {
	g := openGrants(paths)
	start := time.Now()
	free, _ := g.free()
	walked := make(chan Use, 1)
	w := &walker{grants: g, until: start.Add(maxWalk)}
	go func() {
		defer g.close()
		walked <- w.walk()
	}()
	select {
	case use := <-walked:
		use.Free, use.Took = free, time.Since(start)
		return use
	case <-time.After(maxWalk + time.Second): // a file system does not answer
		w.stop.Store(true)
		return Use{Incomplete: true, Free: free, Took: maxWalk}
	}
}

type inode struct{ dev, ino uint64 }

type grants struct {
	files   []*os.File
	ids     map[inode]bool
	systems []*os.File      // one of files for each file system
	devices map[uint64]bool // the file systems' numbers
	remote  bool            // what is known of a file has to be asked for: a network, or a process, serves it
	missing bool
}

// openGrants opens the grants once: what the program later puts in the way of a path that leads through another grant
// changes nothing.
func openGrants(paths []string) *grants {
	g := &grants{ids: map[inode]bool{}, devices: map[uint64]bool{}}
	for _, p := range paths {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
		fd, err := unix.Openat2(unix.AT_FDCWD, p, &how)
		if err != nil {
			g.missing = true
			continue
		}
		f := os.NewFile(uintptr(fd), p)
		var st unix.Statx_t
		err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st)
		id := statxID(&st)
		if err != nil || g.ids[id] {
			g.missing = g.missing || err != nil
			f.Close()
			continue
		}
		g.ids[id] = true
		g.files = append(g.files, f)
		if !g.devices[id.dev] {
			g.devices[id.dev] = true
			g.systems = append(g.systems, f)
			g.remote = g.remote || !local(f)
		}
	}
	return g
}

// local reports whether the kernel itself knows all of a file system.
func local(f *os.File) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil {
		return false
	}
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC:
		return true
	}
	return false
}

func (g *grants) close() {
	for _, f := range g.files {
		f.Close()
	}
}

// free is the free space of the grants' file systems, and whether it shows at once what is written there. btrfs learns
// of it when data goes to the disk; of overlayfs and others it is not known what is below.
func (g *grants) free() (free []int64, prompt bool) {
	prompt = true
	for _, f := range g.systems {
		var st unix.Statfs_t
		if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
			st = unix.Statfs_t{}
		}
		switch st.Type {
		case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC:
			prompt = prompt && st.Blocks > 0 // a tmpfs without a size says 0 of everything
		default:
			prompt = false
		}
		free = append(free, int64(st.Bfree)*st.Frsize)
	}
	return free, prompt
}

func statxID(st *unix.Statx_t) inode {
	return inode{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino}
}

// walker walks the grants. Its memory is bounded whatever the trees look like.
type walker struct {
	grants *grants
	stop   atomic.Bool // ends a walk early
	until  time.Time   // zero: no end

	use    Use
	linked map[inode]bool // with several names, or without one
	levels []level
	spare  [][]byte
	st     unix.Statx_t
}

// level is a directory on the way from a grant to where the walk is.
type level struct {
	fd     int // -1: closed, since too many were open
	id     inode
	others bool   // of another user
	buf    []byte // entries that were read and not looked at yet
	all    []byte // the memory of buf
	next   int64  // where the directory goes on after the last entry that was looked at
}

func (w *walker) walk() Use {
	w.use = Use{Incomplete: w.grants.missing}
	if w.linked == nil {
		w.linked = map[inode]bool{}
	}
	clear(w.linked)
	for _, f := range w.grants.files {
		if w.look(int(f.Fd()), "", unix.AT_EMPTY_PATH) != nil {
			w.use.Incomplete = true
			continue
		}
		if w.st.Mode&unix.S_IFMT != unix.S_IFDIR {
			w.add()
			continue
		}
		w.enter(int(f.Fd()), ".", w.st.Uid)
		for len(w.levels) > 0 {
			if name := w.entry(); name == "" {
				w.leave()
			} else {
				w.visit(name)
			}
		}
	}
	return w.use
}

// look says what a name in a directory is, not where it leads, in w.st.
func (w *walker) look(dir int, name string, flags int) error {
	return unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|flags, unix.STATX_BASIC_STATS, &w.st)
}

// add counts what w.st says.
func (w *walker) add() {
	bytes := int64(w.st.Blocks) * 512
	if w.st.Nlink != 1 && w.st.Mode&unix.S_IFMT != unix.S_IFDIR {
		id := statxID(&w.st)
		switch {
		case w.linked[id]:
			return
		case len(w.linked) < mostLinked:
			w.linked[id] = true
		default:
			// Each name counts for its part. A file with names elsewhere counts too little like this.
			bytes /= max(1, int64(w.st.Nlink))
			w.use.Incomplete = true
		}
	}
	w.use.Bytes += bytes
}

// entry is the next name in the directory where the walk is.
func (w *walker) entry() string {
	l := &w.levels[len(w.levels)-1]
	for {
		if len(l.buf) == 0 && !w.fill(l) {
			return ""
		}
		var d hostfs.Dirent
		if d, l.buf = hostfs.NextDirent(l.buf); d.Name != "" {
			l.next = d.Next
			return d.Name
		}
	}
}

// ended reports whether a walk is to be given up, and notes that.
func (w *walker) ended() bool {
	over := w.stop.Load() || !w.until.IsZero() && time.Now().After(w.until)
	w.use.Incomplete = w.use.Incomplete || over
	return over
}

func (w *walker) fill(l *level) bool {
	if w.ended() {
		return false
	}
	if l.all == nil {
		if n := len(w.spare); n > 0 {
			l.all, w.spare = w.spare[n-1], w.spare[:n-1]
		} else {
			l.all = make([]byte, 32<<10)
		}
	}
	n, err := unix.Getdents(l.fd, l.all)
	if err != nil {
		w.missed(err, false)
		return false
	}
	l.buf = l.all[:n]
	return n > 0
}

// missed takes note of what could not be read. What has gone or become another since it was listed is no matter, for
// programs delete and rename all the time: the next walk sees what is there then.
func (w *walker) missed(err error, fine bool) {
	if !fine && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		w.use.Incomplete = true
	}
}

func (w *walker) visit(name string) {
	l := &w.levels[len(w.levels)-1]
	// What is mounted here may be served by somebody who does not answer: the kernel's own data shows that it is a mount.
	err := w.look(l.fd, name, unix.AT_STATX_DONT_SYNC)
	if err == nil && w.grants.remote && w.st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		err = w.look(l.fd, name, 0)
	}
	if err != nil {
		// A directory that neither we nor, with the same user and fewer groups, the program can search holds nothing new.
		w.missed(err, l.others && errors.Is(err, unix.EACCES))
		return
	}
	switch {
	case w.st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 || w.grants.ids[statxID(&w.st)]:
		// Another mount is not ours to count. A grant counts for itself.
	case w.st.Mode&unix.S_IFMT == unix.S_IFDIR:
		w.enter(l.fd, name, w.st.Uid)
	default:
		w.add()
	}
}

// enter goes down into a directory that has just been looked at. RESOLVE_NO_XDEV refuses mounts, not by st_dev: a
// program can make a btrfs subvolume, whose number differs, without being anybody.
func (w *walker) enter(dir int, name string, owner uint32) {
	euid := os.Geteuid()
	others := euid != 0 && int(owner) != euid
	fd, err := openDir(dir, name)
	if err != nil {
		w.add()
		shut := errors.Is(err, unix.EACCES) && others &&
			unix.Faccessat(dir, name, unix.X_OK, unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW) != nil // to the program too
		w.missed(err, shut || errors.Is(err, unix.EXDEV))
		return
	}
	id := inode{}
	if err = w.look(fd, "", unix.AT_EMPTY_PATH); err == nil {
		id = statxID(&w.st)
	}
	if err != nil || len(w.levels) == mostLevels || name != "." && w.grants.ids[id] { // swapped for a grant just now
		w.use.Incomplete = true
		unix.Close(fd)
		return
	}
	w.add()
	w.levels = append(w.levels, level{fd: fd, id: id, others: others})
	// The first is kept open, to have somewhere to go on.
	if far := len(w.levels) - 1 - mostOpen; far > 0 && w.levels[far].fd >= 0 {
		l := &w.levels[far]
		unix.Close(l.fd)
		w.reuse(l)
		l.fd = -1
	}
}

// openDir opens a directory by one step, down or up, within a mount.
func openDir(dir int, name string) (int, error) {
	return unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
}

func (w *walker) reuse(l *level) {
	if l.all != nil {
		w.spare = append(w.spare, l.all)
	}
	l.all, l.buf = nil, nil
}

// leave goes back up. A directory that was closed on the way down is opened by "..", and must be the same: what was
// moved meanwhile leads elsewhere, and the walk goes on at the top.
func (w *walker) leave() {
	child := &w.levels[len(w.levels)-1]
	w.levels = w.levels[:len(w.levels)-1]
	defer unix.Close(child.fd)
	w.reuse(child)
	if len(w.levels) == 0 || w.levels[len(w.levels)-1].fd >= 0 {
		return
	}
	l := &w.levels[len(w.levels)-1]
	fd, err := openDir(child.fd, "..")
	if err == nil {
		if w.look(fd, "", unix.AT_EMPTY_PATH) == nil && statxID(&w.st) == l.id {
			if _, err := unix.Seek(fd, l.next, unix.SEEK_SET); err == nil {
				l.fd = fd
				return
			}
		}
		unix.Close(fd)
	}
	w.use.Incomplete = true
	w.levels = w.levels[:1] // those between are closed, as this one is
}
