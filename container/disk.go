package container

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// limits.disk: how much a sandbox has added to the host directories and files that it may write, in allocated blocks.
// There is no quota that an unprivileged caller could set, so this is a watch: the trees are walked, and between walks,
// which are dear, the free space of their file systems and the kernel's account of what was written tell whether another
// walk is needed. The program changes the trees under the walk and is hostile: no link is followed, no mount crossed, a
// directory is only ever reached through its parent's descriptor. What the program renames during a walk may be seen
// twice or not at all; too much counts only if two walks say so.
//
// Blocks that are promised but not placed yet (delayed allocation) count on ext4, xfs and btrfs at once: stat adds them.
// On zfs, f2fs and over a network they show late, seconds or until they are written out. xfs sets aside more than a
// growing file needs, up to twice its size; that is taken too until the file is closed. Compression and shared extents
// are not seen: a reflink counts in full.
const (
	diskTick    = 50 * time.Millisecond // between two looks
	diskMinTick = 5 * time.Millisecond
	diskFastest = 8 << 30 // bytes a second that a program may begin to write at any time: memory takes them

	diskShare = 10          // of what time passes, this part (one in ...) may be spent walking
	diskBurst = time.Second // what may be saved up of it
	diskAge   = time.Second // a walk is never believed for longer than this, or 20 times what it took
	diskCheap = 20 * time.Millisecond

	diskWalk   = 30 * time.Second // of a watch, for those that make more files than we can look at
	diskOpen   = 32               // directories open at a time
	diskDepth  = 1 << 18          // levels; 80 bytes each
	diskLinked = 1 << 19          // inodes with several names that are remembered
)

// diskUse is what the writable grants take at a moment.
type diskUse struct {
	Bytes      int64 `json:"bytes"`
	Incomplete bool  `json:"incomplete,omitempty"` // something could not be read
}

// measureDisk adds up what is in host directories and files. Their paths must hold no links, as those of a Plan do. What
// is in two of them, or has two names, counts once.
func measureDisk(paths []string) diskUse {
	g := openGrants(paths)
	defer g.close()
	return (&diskWalker{grants: g}).walk()
}

type diskInode struct{ dev, ino uint64 }

type diskGrants struct {
	files   []*os.File
	ids     map[diskInode]bool
	systems []*os.File      // one of files for each file system
	devices map[uint64]bool // the file systems' numbers
	missing bool
}

// openGrants opens the grants once: what the program later puts in the way of a path that leads through another grant
// changes nothing.
func openGrants(paths []string) *diskGrants {
	g := &diskGrants{ids: map[diskInode]bool{}, devices: map[uint64]bool{}}
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
		}
	}
	return g
}

func (g *diskGrants) close() {
	for _, f := range g.files {
		f.Close()
	}
}

// free is the free space of the grants' file systems, and whether it tells at once what is written there. btrfs learns
// of it when data goes to the disk; of overlayfs and others it is not known what is below.
func (g *diskGrants) free() (free []int64, prompt bool) {
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

func statxID(st *unix.Statx_t) diskInode {
	return diskInode{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino}
}

// diskWalker walks the grants. Its memory is bounded whatever the trees look like.
type diskWalker struct {
	grants *diskGrants
	stop   atomic.Bool // ends a walk early
	until  time.Time   // zero: no end

	use    diskUse
	linked map[diskInode]bool // with several names, or without one
	levels []diskLevel
	spare  [][]byte
	st     unix.Statx_t
}

// diskLevel is a directory on the way from a grant to where the walk is.
type diskLevel struct {
	fd     int // -1: closed, since too many were open
	id     diskInode
	others bool   // of another user
	buf    []byte // entries that were read and not looked at yet
	all    []byte // the memory of buf
	next   int64  // where the directory goes on after the last entry that was looked at
}

func (w *diskWalker) walk() diskUse {
	w.use = diskUse{Incomplete: w.grants.missing}
	if w.linked == nil {
		w.linked = map[diskInode]bool{}
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
func (w *diskWalker) look(dir int, name string, flags int) error {
	return unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT|flags, unix.STATX_BASIC_STATS, &w.st)
}

// add counts what w.st says.
func (w *diskWalker) add() {
	bytes := int64(w.st.Blocks) * 512
	if w.st.Nlink != 1 && w.st.Mode&unix.S_IFMT != unix.S_IFDIR {
		id := statxID(&w.st)
		switch {
		case w.linked[id]:
			return
		case len(w.linked) < diskLinked:
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
func (w *diskWalker) entry() string {
	l := &w.levels[len(w.levels)-1]
	for {
		if len(l.buf) == 0 && !w.fill(l) {
			return ""
		}
		// struct linux_dirent64: inode 8, where the next is 8, length 2, type 1, name
		size := binary.NativeEndian.Uint16(l.buf[16:])
		l.next = int64(binary.NativeEndian.Uint64(l.buf[8:]))
		name := unix.ByteSliceToString(l.buf[19:size])
		l.buf = l.buf[size:]
		if name != "." && name != ".." {
			return name
		}
	}
}

func (w *diskWalker) fill(l *diskLevel) bool {
	if w.stop.Load() || !w.until.IsZero() && time.Now().After(w.until) {
		w.use.Incomplete = true
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
func (w *diskWalker) missed(err error, fine bool) {
	if !fine && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		w.use.Incomplete = true
	}
}

func (w *diskWalker) visit(name string) {
	l := &w.levels[len(w.levels)-1]
	if err := w.look(l.fd, name, 0); err != nil {
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

// enter goes down into a directory that has just been looked at. Mounts are told by RESOLVE_NO_XDEV, not by st_dev: a
// program can make a btrfs subvolume, whose number differs, without being anybody.
func (w *diskWalker) enter(dir int, name string, owner uint32) {
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
	id := diskInode{}
	if err = w.look(fd, "", unix.AT_EMPTY_PATH); err == nil {
		id = statxID(&w.st)
	}
	if err != nil || len(w.levels) == diskDepth || name != "." && w.grants.ids[id] { // swapped for a grant just now
		w.use.Incomplete = true
		unix.Close(fd)
		return
	}
	w.add()
	w.levels = append(w.levels, diskLevel{fd: fd, id: id, others: others})
	// The first is kept open, to have somewhere to go on.
	if far := len(w.levels) - 1 - diskOpen; far > 0 && w.levels[far].fd >= 0 {
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

func (w *diskWalker) reuse(l *diskLevel) {
	if l.all != nil {
		w.spare = append(w.spare, l.all)
	}
	l.all, l.buf = nil, nil
}

// leave goes back up. A directory that was closed on the way down is opened by "..", and must be the same: what was
// moved meanwhile leads elsewhere, and the walk goes on at the top.
func (w *diskWalker) leave() {
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

// diskWatch tells how much has been added since the sandbox was made.
type diskWatch struct {
	// held, unless nil, counts after each walk what the exec's processes hold and no directory shows.
	held func(*diskWalker)

	mu      sync.Mutex
	walker  diskWalker
	base    int64
	limit   int64
	added   int64
	walks   int
	budget  time.Duration // for walks; in debt after one that took long
	checked time.Time
	rate    float64 // bytes a second

	// Of the last walk, and of the last that saw all.
	at      time.Time
	took    time.Duration
	prompt  bool
	free    []int64
	written int64
	known   diskMark
	moved   int64 // since that walk, at the last look
}

// diskMark is how much there was when so much had been written.
type diskMark struct{ bytes, written int64 }

// newDiskWatch begins a watch for an exec. base is what was there when the sandbox was made; limit what may be added to
// it.
func newDiskWatch(paths []string, base diskUse, limit int64) *diskWatch {
	w := &diskWatch{base: base.Bytes, limit: limit, budget: diskBurst, known: diskMark{bytes: base.Bytes}}
	w.walker.grants = openGrants(paths)
	return w
}

// close ends the watch, and a walk that is under way with it. It may be called from any goroutine.
func (w *diskWatch) close() {
	w.walker.stop.Store(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.walker.grants.close()
}

// check says how much has been added, whether that is more than allowed, and when to ask again. It is called from one
// goroutine; written is what the exec's processes have written so far by the kernel's own accounting (the sum of
// write_bytes - cancelled_write_bytes of /proc/PID/io, or -1 if unknown).
func (w *diskWatch) check(now time.Time, written int64) (added int64, exceeded bool, next time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.walker.stop.Load() {
		return w.added, false, diskTick
	}
	free, prompt := w.walker.grants.free()
	moved := max(w.shrunk(free), since(w.written, written))
	w.pass(now, moved)
	if w.due(now, moved) {
		moved = 0
		w.measure(free, written)
		w.at, w.prompt = now, prompt
	}
	w.moved = moved
	return w.added, w.added > w.limit, w.wait(w.limit - w.added - moved)
}

// shrunk is how much less is free than before the last walk.
func (w *diskWatch) shrunk(free []int64) int64 {
	var sum int64
	for i, before := range w.free {
		sum += max(0, before-free[i])
	}
	return sum
}

func since(before, now int64) int64 {
	if before < 0 || now < 0 {
		return 0
	}
	return max(0, now-before)
}

// pass takes note of the time that has passed, and of how fast things go.
func (w *diskWatch) pass(now time.Time, moved int64) {
	if d := now.Sub(w.checked); d > 0 && !w.checked.IsZero() {
		w.budget = min(diskBurst, w.budget+d/diskShare)
		w.rate = max(w.rate/2, float64(moved-w.moved)/d.Seconds())
	}
	w.checked = now
}

func (w *diskWatch) due(now time.Time, moved int64) bool {
	switch {
	case w.walks == 0:
		return true
	case w.budget <= 0:
		return false
	case w.added+moved > w.limit:
		return true
	case w.prompt:
		return now.Sub(w.at) >= max(diskAge, 20*w.took)
	}
	return now.Sub(w.at) >= 20*w.took
}

// measure walks. What was free and written before it counts from there on, so that what is written meanwhile cannot be
// missed by both.
func (w *diskWatch) measure(free []int64, written int64) {
	shrunk := w.shrunk(free)
	total := w.count(written)
	spent := w.took
	// Unless that takes long, and free space bears it out.
	if total-w.base > w.limit && (w.took < diskCheap || w.added+shrunk <= w.limit) {
		total = min(total, w.count(written))
		spent += w.took
	}
	w.budget -= spent
	if w.walker.stop.Load() {
		return
	}
	w.free, w.written = free, written
	w.added = max(0, total-w.base)
}

// count is what the grants take. Where something could not be read, all that was written since everything could be is
// held to be there still.
func (w *diskWatch) count(written int64) int64 {
	start := time.Now()
	w.walker.until = start.Add(diskWalk)
	use := w.walker.walk()
	if w.held != nil {
		w.held(&w.walker)
		use = w.walker.use
	}
	w.walks++
	w.took = time.Since(start)
	if !use.Incomplete {
		w.known = diskMark{use.Bytes, written}
		return use.Bytes
	}
	return max(use.Bytes, w.known.bytes+since(w.known.written, written))
}

// wait is how long what is left lasts.
func (w *diskWatch) wait(left int64) time.Duration {
	d := time.Duration(float64(left) / max(diskFastest, w.rate) * float64(time.Second))
	if w.budget <= 0 {
		d = max(d, -w.budget*diskShare)
	}
	return min(max(d, diskMinTick), diskTick)
}
