package hostfs

import (
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Trace remembers what the tree of the host was asked and what it answered, so that the same can be asked again: what was decided from the
// answers holds for as long as these stay the same.
type Trace struct {
	mu     sync.Mutex
	facts  map[question]fact
	list   []question // the same, when all has been asked
	mounts string     // of the host
	silent bool       // something was asked of a file system that may not answer
	newest time.Time  // when the youngest of all that was read had changed
}

type question struct {
	how  asked
	path string
}

// asked is what of a path was looked at.
type asked byte

const (
	askedStat    asked = iota // what it is
	askedEntry                // and how large, where it is a file
	askedLink                 // where it leads
	askedContent              // what is in it, as a directory or a file that is no link
	askedBehind               // the same, behind a link
)

// fact is an answer.
type fact struct {
	errno          syscall.Errno // there was none
	dev, ino       uint64
	mode, uid, gid uint32
	nlink          uint64 // of what is no directory
	size           int64  // of what was read
	mtime, ctime   syscall.Timespec
	text           string
}

const ownMountinfo = "/proc/thread-self/mountinfo"

// grain is what two changes of a file may lie apart and still have one time.
const grain = 20 * time.Millisecond

func look(q question) fact {
	var st syscall.Stat_t
	var err error
	switch q.how {
	case askedLink:
		var buf [syscall.PathMax]byte
		n, err := syscall.Readlink(q.path, buf[:])
		if err != nil {
			return failedFact(err)
		}
		return fact{text: string(buf[:n])}
	case askedBehind:
		err = syscall.Stat(q.path, &st)
	default:
		err = syscall.Lstat(q.path, &st)
	}
	if err != nil {
		return failedFact(err)
	}
	f := fact{dev: st.Dev, ino: st.Ino, mode: st.Mode, uid: st.Uid, gid: st.Gid}
	if st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		f.nlink = uint64(st.Nlink) // 32 bits wide on arm64
	}
	switch {
	case q.how == askedContent || q.how == askedBehind:
		f.size, f.mtime, f.ctime = st.Size, st.Mtim, st.Ctim
	case q.how == askedEntry && f.nlink > 0:
		f.size = st.Size
	}
	return f
}

func failedFact(err error) fact {
	errno := syscall.EIO
	errors.As(err, &errno)
	return fact{errno: errno}
}

// note remembers what is at a path. It is called before what it is needed for is read: a change between the two is then a change.
func (t *Trace) note(how asked, path string) {
	if t == nil {
		return
	}
	q := question{how, path}
	f := look(q)
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.facts[q]; known {
		return // if that was something else, it is not the same any more
	}
	t.facts[q] = f
	if at := time.Unix(f.ctime.Unix()); at.After(t.newest) {
		t.newest = at
	}
}

// Settled says whether nothing that was read had just been changed. If it had, and is changed again, that may not show.
func (t *Trace) Settled(since time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.newest.Before(since.Add(-grain))
}

// Same asks again, and says whether all answers are as they were.
func (t *Trace) Same() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	mounts, err := os.ReadFile(ownMountinfo)
	if t.silent || err != nil || string(mounts) != t.mounts {
		return false
	}
	if len(t.list) != len(t.facts) {
		t.list = slices.Collect(maps.Keys(t.facts))
	}
	half := len(t.list) / 2
	first := make(chan bool, 1)
	go func() { first <- t.same(t.list[:half]) }()
	second := t.same(t.list[half:])
	return <-first && second
}

func (t *Trace) same(list []question) bool {
	return !slices.ContainsFunc(list, func(q question) bool { return look(q) != t.facts[q] })
}

// Follow also remembers where a path leads, with every link on the way.
func (t *Trace) Follow(path string) { RealPath(Host{servers: &servers{}, trace: t}, path) }

// Read also remembers the content of a file.
func (t *Trace) Read(path string) {
	t.Follow(path)
	t.note(askedBehind, path)
}
