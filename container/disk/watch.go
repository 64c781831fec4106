package disk

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// patience is how long a look waits for a walk. Free space has to be looked at meanwhile.
const patience = 50 * time.Millisecond

// Watch measures how much has been added since the sandbox was made.
type Watch struct {
	// Held, unless nil, counts after each walk what the exec's processes hold and no directory shows.
	Held func(*walker)

	mu      sync.Mutex
	walker  walker
	walking chan struct{} // closed when the walk that is under way has ended; nil: there is none
	doubt   time.Time     // since when free space has said that there is too much, and no walk that there is not
	last    bool          // the exec has ended: nothing will be looked at any more
	grace   time.Duration
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
	known   mark
	moved   int64 // since that walk, at the last look
}

// mark is how much there was when so much had been written, and so much was free.
type mark struct {
	bytes, written int64
	free           []int64
}

// NewWatch begins a watch for an exec. base is what was there when the sandbox was made; limit what may be added to
// it.
func NewWatch(paths []string, base Use, limit int64) *Watch {
	w := &Watch{
		base: base.Bytes, limit: limit, budget: burst, known: mark{bytes: base.Bytes, free: base.Free},
		grace: leastGrace + 3*base.Took,
	}
	w.walker.grants = openGrants(paths)
	return w
}

// Close ends the watch, and a walk that is under way with it. It may be called from any goroutine, and waits for nobody: a
// file system may not answer.
func (w *Watch) Close() {
	w.walker.stop.Store(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.walking == nil {
		w.walker.grants.close()
	}
}

// Check says how much has been added, whether that is more than allowed, and when to ask again. It is called from one
// goroutine; written is what the exec's processes have written so far by the kernel's own accounting (the sum of
// write_bytes - cancelled_write_bytes of /proc/PID/io, or -1 if unknown). Walks have a goroutine of their own: what a
// program can make takes as long to walk through as it likes.
func (w *Watch) Check(now time.Time, written int64) (added int64, exceeded bool, next time.Duration) {
	if w.walker.stop.Load() {
		return w.added, false, tick
	}
	free, prompt := w.walker.grants.free()
	w.mu.Lock()
	defer w.mu.Unlock()
	moved := w.since(free, written)
	w.pass(now, moved)
	if w.walking == nil && w.due(now, moved) {
		w.walking = make(chan struct{})
		w.at, w.prompt = now, prompt
		go w.measure(free, written, w.walking)
	}
	if w.walking != nil {
		w.await(w.walking)
		moved = w.since(free, written)
	}
	w.moved = moved
	return w.added, w.added > w.limit || w.doubted(now, moved), w.wait(w.limit - w.added - moved)
}

// Final is Check for an exec that has ended. What no walk has found by then is as much as free space says; where the file
// system does not say that either, it is too much.
func (w *Watch) Final(written int64) bool {
	result := make(chan bool, 1)
	go func() {
		w.mu.Lock()
		w.last = true
		if w.walking != nil { // it may have begun before the program's last step
			w.await(w.walking)
		}
		w.mu.Unlock()
		_, exceeded, _ := w.Check(time.Now(), written)
		result <- exceeded
	}()
	select {
	case exceeded := <-result:
		return exceeded
	case <-time.After(2 * (w.grace + leastGrace)):
		return true
	}
}

// await lets go of the lock while it waits for a walk, for a while.
func (w *Watch) await(walk chan struct{}) {
	patience := patience
	if w.last {
		patience = w.grace
	}
	w.mu.Unlock()
	defer w.mu.Lock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-walk:
	case <-timer.C:
	}
}

// doubted reports whether free space, or the kernel's account of what was written, has said for too long that there is too
// much, without a walk that has found less. Then the trees cannot be walked through in time.
func (w *Watch) doubted(now time.Time, moved int64) bool {
	if w.added+moved <= w.limit {
		w.doubt = time.Time{}
		return false
	}
	if w.doubt.IsZero() {
		w.doubt = now
	}
	return w.last || now.Sub(w.doubt) > w.grace
}

// since is how much may have been added since the last walk began.
func (w *Watch) since(free []int64, written int64) int64 {
	return max(shrunk(w.free, free), since(w.written, written))
}

// shrunk is how much less is free than before.
func shrunk(before, now []int64) int64 {
	var sum int64
	for i := range min(len(before), len(now)) {
		sum += max(0, before[i]-now[i])
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
func (w *Watch) pass(now time.Time, moved int64) {
	if d := now.Sub(w.checked); d > 0 && !w.checked.IsZero() {
		w.budget = min(burst, w.budget+d/walkShare)
		w.rate = max(w.rate/2, float64(moved-w.moved)/d.Seconds())
	}
	w.checked = now
}

func (w *Watch) due(now time.Time, moved int64) bool {
	switch {
	case w.walks == 0, w.last && w.budget > 0: // others may have freed as much as the program has taken
		return true
	case w.added+moved > w.limit && (w.last || !w.doubt.IsZero() && now.Sub(w.doubt) > w.grace/2):
		return true
	case w.budget <= 0:
		return false
	case w.added+moved > w.limit:
		return true
	case w.prompt:
		return now.Sub(w.at) >= max(maxAge, 20*w.took)
	}
	return now.Sub(w.at) >= 20*w.took
}

// measure walks. What was free and written before it counts from there on, so that what is written meanwhile cannot be
// missed by both.
func (w *Watch) measure(free []int64, written int64, walk chan struct{}) {
	lost := shrunk(w.free, free)
	total := w.count(free, written)
	spent := w.took
	// Unless that takes long, and free space bears it out.
	if total-w.base > w.limit && (w.took < cheapWalk || w.added+lost <= w.limit) {
		total = min(total, w.count(free, written))
		spent += w.took
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	close(walk)
	w.walking = nil
	w.budget -= spent
	if w.walker.stop.Load() {
		w.walker.grants.close()
		return
	}
	w.free, w.written = free, written
	w.added = max(0, total-w.base)
}

// count is what the grants take. Where something could not be read, all that was written since everything could be is
// held to be there still, or all that has gone from the free space, whichever process took it: a program can take space without
// writing.
func (w *Watch) count(free []int64, written int64) int64 {
	start := time.Now()
	w.walker.until = start.Add(maxWalk)
	use := w.walker.walk()
	if w.Held != nil {
		w.Held(&w.walker)
		use = w.walker.use
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.walks++
	w.took = time.Since(start)
	if !use.Incomplete {
		w.known = mark{use.Bytes, written, free}
		return use.Bytes
	}
	return max(use.Bytes, w.known.bytes+max(since(w.known.written, written), shrunk(w.known.free, free)))
}

// wait is how long what is left lasts.
func (w *Watch) wait(left int64) time.Duration {
	d := time.Duration(float64(left) / max(fastest, w.rate) * float64(time.Second))
	if w.budget <= 0 {
		d = max(d, -w.budget*walkShare)
	}
	return min(max(d, minTick), tick)
}

// Below are the mount points below writable grants that the program can write too. A file
// system that a process serves is that one's own, and may not answer.
func Below(view *rootfs.View) []string {
	mounts, err := hostfs.OwnMounts()
	if err != nil {
		return nil
	}
	var list []string
	for _, on := range mounts {
		if strings.HasPrefix(on.Kind, "fuse") || slices.Contains(noDisks(), on.Kind) {
			continue
		}
		if m := holder(view, on.Target); m != nil && m.Writable && m.Source != on.Target {
			list = append(list, on.Target)
		}
	}
	return list
}

// noDisks are file systems on which nothing is kept.
func noDisks() []string {
	return []string{"autofs", "proc", "sysfs", "cgroup", "cgroup2", "devpts", "devtmpfs", "mqueue", "debugfs", "tracefs", "securityfs", "bpf", "nsfs"}
}

// holder is the bind that shows a host path, the deepest of them.
func holder(view *rootfs.View, host string) *rootfs.Mount {
	var best *rootfs.Mount
	for i := range view.Mounts {
		m := &view.Mounts[i]
		if m.Kind == rootfs.MountBind && m.Source != "" && pathname.Within(host, m.Source) && (best == nil || len(m.Source) > len(best.Source)) {
			best = m
		}
	}
	return best
}
