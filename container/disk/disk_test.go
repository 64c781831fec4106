package disk

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const mega = 1 << 20

// realDir is a directory whose path holds no link, removed even where it is deeper than os.RemoveAll has descriptors for.
func realDir(tb testing.TB) string {
	tb.Helper()
	dir, err := filepath.EvalSymlinks(tb.TempDir())
	must(tb, err)
	return dir
}

// put writes a file of so many bytes, and makes the directories above it.
func put(tb testing.TB, path string, size int) {
	tb.Helper()
	must(tb, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, make([]byte, size), 0o644))
}

func must(tb testing.TB, errs ...error) {
	tb.Helper()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
}

// near fails unless what was measured is so many bytes, give or take what directories cost.
func near(tb testing.TB, what string, got Use, want int64) {
	tb.Helper()
	if got.Incomplete || got.Bytes < want || got.Bytes > want+want/20+64<<10 {
		tb.Errorf("%s: %+v, should be about %d", what, got, want)
	}
}

func TestDiskCounts(t *testing.T) {
	dir := realDir(t)
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	put(t, filepath.Join(in, "a"), mega)
	put(t, filepath.Join(in, "sub/b"), mega)
	put(t, filepath.Join(in, "empty"), 0)
	near(t, "files", Measure([]string{in}), 2*mega)

	// What takes no blocks, counts already, or is elsewhere.
	put(t, filepath.Join(out, "big"), 4*mega)
	sparse := filepath.Join(in, "sparse")
	put(t, sparse, 0)
	must(t, os.Truncate(sparse, 1<<40),
		os.Link(filepath.Join(in, "a"), filepath.Join(in, "sub/a")),
		os.Symlink(out, filepath.Join(in, "dir")),
		os.Symlink(filepath.Join(out, "big"), filepath.Join(in, "sub/file")),
		os.Symlink("..", filepath.Join(in, "sub/up")),
		unix.Mkfifo(filepath.Join(in, "fifo"), 0o644))
	near(t, "links and holes", Measure([]string{in}), 2*mega)

	// Grants within grants, the same grant again, files as grants.
	sub, a, big := filepath.Join(in, "sub"), filepath.Join(in, "a"), filepath.Join(out, "big")
	for _, grants := range [][]string{{in, sub}, {sub, in}, {in, in, a}, {a, in, sub}, {a, sub}} {
		near(t, fmt.Sprint(grants), Measure(grants), 2*mega)
	}
	near(t, "a file", Measure([]string{big}), 4*mega)
	near(t, "two grants", Measure([]string{in, big}), 6*mega)
	near(t, "none", Measure(nil), 0)

	for _, p := range []string{filepath.Join(dir, "missing"), filepath.Join(in, "dir")} {
		if use := Measure([]string{p}); !use.Incomplete || use.Bytes != 0 {
			t.Errorf("%s: %+v", p, use)
		}
	}
}

func TestDiskUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	dir := realDir(t)
	put(t, filepath.Join(dir, "seen"), mega)
	base := Measure([]string{dir})
	w := NewWatch([]string{dir}, base, 4*mega)
	defer w.Close()
	now := time.Now()
	put(t, filepath.Join(dir, "shut/file"), 2*mega)
	if added, over, _ := w.Check(now, 2*mega); added < 2*mega || over {
		t.Errorf("before: %d %v", added, over)
	}
	for _, mode := range []os.FileMode{0, 0o400} {
		must(t, os.Chmod(filepath.Join(dir, "shut"), mode))
		if use := Measure([]string{dir}); !use.Incomplete || use.Bytes > 2*mega {
			t.Errorf("mode %o: %+v", mode, use)
		}
	}
	// What it hides is held to be there, and so is all that is written from then on.
	if added, over, _ := w.Check(now.Add(time.Minute), 3*mega); added < 3*mega || over {
		t.Errorf("hidden: %d %v", added, over)
	}
	if added, over, _ := w.Check(now.Add(2*time.Minute), 5*mega); added < 5*mega || !over {
		t.Errorf("hidden, too much: %d %v", added, over)
	}
	must(t, os.Chmod(filepath.Join(dir, "shut"), 0o700))
	if added, over, _ := w.Check(now.Add(3*time.Minute), 5*mega); added > 3*mega || over {
		t.Errorf("shown again: %d %v", added, over)
	}
}

// The directories of other users that are closed to us are closed to the program.
func TestDiskOfOthers(t *testing.T) {
	var st unix.Stat_t
	if unix.Stat("/etc/ssl/private", &st) != nil || unix.Access("/etc/ssl/private", unix.X_OK) == nil {
		t.Skip("no directory that is closed to us")
	}
	if use := Measure([]string{"/etc/ssl"}); use.Incomplete {
		t.Errorf("%+v", use)
	}
}

// background does something over and over, until it fails or is stopped.
func background(tb testing.TB, do func() error) (stop func()) {
	tb.Helper()
	var done atomic.Bool
	var work sync.WaitGroup
	work.Go(func() {
		for !done.Load() {
			if err := do(); err != nil {
				tb.Error(err)
				return
			}
		}
	})
	return func() {
		done.Store(true)
		work.Wait()
	}
}

// A walk must not be led out of the grant, whenever the program puts a link in the place of a directory.
func TestDiskSwappedForLink(t *testing.T) {
	dir := realDir(t)
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	put(t, filepath.Join(in, "d/sub/file"), 64<<10)
	put(t, filepath.Join(out, "sub/file"), 8*mega)
	must(t, os.Symlink("../out", filepath.Join(in, "link")))
	stop := background(t, func() error {
		return unix.Renameat2(unix.AT_FDCWD, filepath.Join(in, "d"), unix.AT_FDCWD, filepath.Join(in, "link"), unix.RENAME_EXCHANGE)
	})
	var largest int64
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		largest = max(largest, Measure([]string{in}).Bytes)
	}
	stop()
	if largest > mega {
		t.Errorf("%d bytes: what is outside was counted", largest)
	}
}

func TestDiskDeep(t *testing.T) {
	const depth = 2000
	dir := realDir(t)
	deepTree(t, dir, depth) // beside the way down there are files, and some of them are read only on the way up
	var st unix.Stat_t
	must(t, unix.Stat(dir, &st))
	before, most := descriptors(t), 0
	stop := background(t, func() error {
		most = max(most, descriptors(t))
		return nil
	})
	var use Use
	for range 3 {
		use = Measure([]string{dir})
	}
	stop()
	near(t, "deep", use, depth*(st.Blocks*512+2*4096))
	if most > before+mostOpen+20 {
		t.Errorf("%d descriptors open, %d before", most, before)
	}
}

// deepTree makes directories within directories, by descriptors since no path is that long.
func deepTree(tb testing.TB, dir string, depth int) {
	tb.Helper()
	tb.Cleanup(func() { _ = exec.Command("rm", "-rf", dir).Run() })
	at, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	must(tb, err)
	for i := range depth {
		for _, name := range []string{"a", "z"} {
			fd, err := unix.Openat(at, name+strconv.Itoa(i), unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
			_, err2 := unix.Write(fd, make([]byte, 4096))
			must(tb, err, err2, unix.Close(fd))
		}
		err := unix.Mkdirat(at, "m", 0o700)
		below, err2 := unix.Openat(at, "m", unix.O_PATH|unix.O_CLOEXEC, 0)
		must(tb, err, err2, unix.Close(at))
		at = below
	}
	unix.Close(at)
}

func descriptors(tb testing.TB) int {
	tb.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		tb.Error(err) // not must: it is called in another goroutine
	}
	return len(list)
}

// What is moved out of the way while the walk is below it cannot be gone back to.
func TestDiskMovedWhileBelow(t *testing.T) {
	dir := realDir(t)
	deepTree(t, dir, mostOpen+10)
	g := openGrants([]string{dir})
	defer g.close()
	w := &walker{grants: g, linked: map[inode]bool{}}
	w.enter(int(g.files[0].Fd()), ".", 0)
	deepest := 0
	for len(w.levels) > 0 {
		name := w.entry()
		if name == "" {
			w.leave()
			continue
		}
		w.visit(name)
		if n := len(w.levels); n > deepest {
			if deepest = n; n == mostOpen+10 {
				must(t, os.Rename(filepath.Join(dir, "m/m/m/m"), filepath.Join(dir, "moved")))
			}
		}
	}
	if !w.use.Incomplete || deepest < mostOpen+10 {
		t.Errorf("%+v, depth %d", w.use, deepest)
	}
}

func TestDiskOtherMounts(t *testing.T) {
	dir := realDir(t)
	put(t, filepath.Join(dir, "in/file"), mega)
	put(t, filepath.Join(dir, "in/one"), 0)
	put(t, filepath.Join(dir, "beside/big"), 4*mega)
	sub, same := filepath.Join(dir, "in/sub"), filepath.Join(dir, "in/same")
	must(t, os.Mkdir(sub, 0o755), os.Mkdir(same, 0o755))
	var skip error
	var use Use
	var apart sync.WaitGroup
	apart.Go(func() {
		runtime.LockOSThread() // for good: the thread ends with its mount namespace
		skip = errors.Join(
			unix.Unshare(unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("tmpfs", sub, "tmpfs", 0, ""),
			unix.Mount(filepath.Join(dir, "beside"), same, "", unix.MS_BIND, ""),
			unix.Mount(filepath.Join(dir, "beside/big"), filepath.Join(dir, "in/one"), "", unix.MS_BIND, ""),
		)
		if skip == nil {
			put(t, filepath.Join(sub, "big"), 4*mega)
			use = Measure([]string{filepath.Join(dir, "in")})
		}
	})
	apart.Wait()
	if skip != nil {
		t.Skip("no mount namespace: ", skip)
	}
	near(t, "with mounts below", use, mega)
}

func TestDiskDeletionGivesBack(t *testing.T) {
	dir := realDir(t)
	put(t, filepath.Join(dir, "old"), mega)
	w := NewWatch([]string{dir}, Measure([]string{dir}), 2*mega)
	defer w.Close()
	now := time.Now()
	for _, size := range []int{mega, 3 * mega, 0} {
		put(t, filepath.Join(dir, "new"), size)
		now = now.Add(time.Minute)
		added, over, next := w.Check(now, -1)
		if over != (size > 2*mega) || added < int64(size) || added > int64(size)+64<<10 || next <= 0 || next > tick {
			t.Errorf("%d: %d added, %v, next in %v", size, added, over, next)
		}
	}
	must(t, os.Remove(filepath.Join(dir, "old")))
	if added, over, _ := w.Check(now.Add(time.Minute), -1); added != 0 || over {
		t.Errorf("less than at first: %d %v", added, over)
	}
	w.Close()
	if _, over, _ := w.Check(now.Add(2*time.Minute), 1<<40); over {
		t.Error("a watch that has been closed finds something")
	}
}

// Between walks the free space tells, or the kernel's account of what was written. On a busy machine our turn may come
// late: the best of some tries counts.
func TestDiskExceededSoon(t *testing.T) {
	const limit = 256 * mega
	for _, accounted := range []bool{false, true} {
		over := int64(math.MaxInt64)
		for try := 0; try < 8 && over > max(64*mega, limit/4); try++ {
			over = writeBeyond(t, limit, accounted) - limit
		}
		if t.Logf("accounted: %v: %d MB over", accounted, over/mega); over > max(64*mega, limit/4) {
			t.Error("too late")
		}
	}
}

// writeBeyond writes as fast as it can until a watch says that it is too much, and says how much that was.
func writeBeyond(t *testing.T, limit int64, accounted bool) int64 {
	t.Helper()
	dir := realDir(t)
	w := NewWatch([]string{dir}, Measure([]string{dir}), limit)
	defer w.Close()
	f, err := os.OpenFile(filepath.Join(dir, "big"), os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	defer f.Close()
	var total atomic.Int64
	block := make([]byte, mega)
	stop := background(t, func() error {
		if total.Load() > 8*limit {
			return nil
		}
		n, err := f.Write(block)
		total.Add(int64(n))
		return err
	})
	defer func() { must(t, os.Remove(f.Name())) }()
	defer stop()
	for start := time.Now(); time.Since(start) < 20*time.Second; {
		written := int64(-1)
		if accounted {
			written = total.Load()
		}
		_, over, next := w.Check(time.Now(), written)
		if over {
			return total.Load()
		}
		time.Sleep(next)
	}
	return math.MaxInt64
}
