package hostfs

import (
	"bytes"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Trace remembers what the tree of the host was asked and what it answered, so that the same can be asked again: what was decided from the
// answers holds for as long as these stay the same.
type Trace struct {
	mu     sync.Mutex
	facts  map[question]fact
	list   []answered // the same, when all has been asked, without what another of them answers too
	listed int        // how many facts there were then
	mounts string     // of the host
	silent bool       // something was asked of a file system that may not answer
	newest time.Time  // when the youngest of all that was read had changed
}

type question struct {
	how  asked
	path string
}

type answered struct {
	how  asked
	path []byte // with a zero byte at its end
	fact fact
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
	mtime, ctime   unix.Timespec
	text           string
}

const ownMountinfo = "/proc/thread-self/mountinfo"

// grain is what two changes of a file may lie apart and still have one time.
const grain = 20 * time.Millisecond

// look asks a question. The path ends with a zero byte: a thousand questions are asked of a caller who waits, and to copy each path takes as
// long as the answer.
func look(how asked, path []byte) fact {
	at := unix.AT_FDCWD
	if how == askedLink {
		var buf [unix.PathMax]byte
		n, _, errno := unix.Syscall6(unix.SYS_READLINKAT, uintptr(at), uintptr(unsafe.Pointer(&path[0])), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0)
		if errno != 0 {
			return fact{errno: errno}
		}
		return fact{text: string(buf[:n])}
	}
	var st unix.Stat_t
	flags := uintptr(unix.AT_SYMLINK_NOFOLLOW)
	if how == askedBehind {
		flags = 0
	}
	if _, _, errno := unix.Syscall6(unix.SYS_NEWFSTATAT, uintptr(at), uintptr(unsafe.Pointer(&path[0])), uintptr(unsafe.Pointer(&st)), flags, 0, 0); errno != 0 {
		return fact{errno: errno}
	}
	f := fact{dev: st.Dev, ino: st.Ino, mode: st.Mode, uid: st.Uid, gid: st.Gid}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		f.nlink = uint64(st.Nlink) // 32 bits wide on arm64
	}
	switch {
	case how == askedContent || how == askedBehind:
		f.size, f.mtime, f.ctime = st.Size, st.Mtim, st.Ctim
	case how == askedEntry && f.nlink > 0:
		f.size = st.Size
	}
	return f
}

// note remembers what is at a path. It is called before what it is needed for is read: a change between the two is then a change.
func (t *Trace) note(how asked, path string) {
	if t == nil {
		return
	}
	q := question{how, path}
	t.mu.Lock()
	_, known := t.facts[q]
	t.mu.Unlock()
	if known {
		return // if that is something else now, it is not the same any more
	}
	f := look(how, append([]byte(path), 0))
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.facts[q]; known {
		return
	}
	t.facts[q] = f
	if at := time.Unix(f.ctime.Unix()); at.After(t.newest) {
		t.newest = at
	}
}

// Settled reports whether nothing that was read had just been changed. If it had, and is changed again, that may not show.
func (t *Trace) Settled(since time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.newest.Before(since.Add(-grain))
}

// Same asks again, and says whether all answers are as they were.
func (t *Trace) Same() bool { return t.Ask()() }

// share is how many questions somebody who asks again takes at a time.
const share = 32

// Ask begins to ask again. The function that it returns helps with what is left of that, and says whether all answers are as they were: so who
// has something else to do first does that meanwhile.
func (t *Trace) Ask() func() bool {
	list, silent := t.questions()
	var next atomic.Int64
	var changed atomic.Bool
	work := func() {
		for !changed.Load() {
			to := int(next.Add(share))
			from := to - share
			if from >= len(list) {
				return
			}
			if slices.ContainsFunc(list[from:min(to, len(list))], func(a answered) bool { return look(a.how, a.path) != a.fact }) {
				changed.Store(true)
			}
		}
	}
	begun := make(chan struct{})
	go func() {
		defer close(begun)
		if mounts, err := os.ReadFile(ownMountinfo); silent || err != nil || string(mounts) != t.mounts {
			changed.Store(true)
		}
		work()
	}()
	return func() bool {
		work()
		<-begun
		return !changed.Load()
	}
}

// questions are those to be asked again, unless somebody may not answer.
func (t *Trace) questions() (list []answered, silent bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.listed == len(t.facts) {
		return t.list, t.silent
	}
	t.list, t.listed = nil, len(t.facts)
	for q, f := range t.facts {
		if !t.answeredBy(q, f) {
			t.list = append(t.list, answered{q.how, append([]byte(q.path), 0), f})
		}
	}
	// The kernel finds the next one faster where it has just found its neighbour.
	slices.SortFunc(t.list, func(a, b answered) int { return bytes.Compare(a.path, b.path) })
	return t.list, t.silent
}

// answeredBy reports whether another question about the same path has the answer in its own.
func (t *Trace) answeredBy(q question, f fact) bool {
	if q.how != askedStat && q.how != askedEntry {
		return false
	}
	for how := askedContent; how > q.how; how-- {
		if g, asked := t.facts[question{how, q.path}]; asked && how != askedLink && g.less(q.how) == f {
			return true
		}
	}
	return false
}

// less is what of an answer a question asks that asks less.
func (f fact) less(how asked) fact {
	if how == askedStat || f.nlink == 0 {
		f.size = 0
	}
	f.mtime, f.ctime = unix.Timespec{}, unix.Timespec{}
	return f
}

// Follow also remembers where a path leads, with every link on the way.
func (t *Trace) Follow(path string) { RealPath(Host{servers: &servers{}, trace: t}, path) }

// Read also remembers the content of a file.
func (t *Trace) Read(path string) {
	t.Follow(path)
	t.note(askedBehind, path)
}
