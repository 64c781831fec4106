package disk

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// manyFiles makes so many empty files in directories of 500.
func manyFiles(tb testing.TB, dir string, n int) {
	tb.Helper()
	for i := range n {
		at := filepath.Join(dir, strconv.Itoa(i/500))
		if i%500 == 0 {
			must(tb, os.Mkdir(at, 0o755))
		}
		fd, err := unix.Open(filepath.Join(at, strconv.Itoa(i)), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		must(tb, err)
		unix.Close(fd)
	}
}

func TestDiskIdle(t *testing.T) {
	dir := realDir(t)
	manyFiles(t, dir, 20000)
	w := NewWatch([]string{dir}, Measure([]string{dir}), math.MaxInt64/2)
	defer w.Close()
	start := time.Now()
	for now := start; now.Sub(start) < time.Minute; now = now.Add(tick) {
		if _, over, next := w.Check(now, 0); over || next != tick {
			t.Fatalf("%v, next in %v", over, next)
		}
	}
	if !w.prompt {
		t.Skipf("%d walks: the free space of this file system tells nothing", w.walks)
	}
	if t.Logf("%d walks in a minute of nothing", w.walks); w.walks > int(time.Minute/maxAge)+1 {
		t.Error("too many")
	}
}

// A neighbour that fills the disk, or a program that writes the same file over and over, must not keep us walking.
func TestDiskShareOfTime(t *testing.T) {
	dir := realDir(t)
	manyFiles(t, dir, 8000)
	w := NewWatch([]string{dir}, Measure([]string{dir}), mega)
	defer w.Close()
	w.budget = 0
	w.grace = time.Hour // see TestDiskDoubt
	start := time.Now()
	var written int64
	var spent, longest time.Duration
	const simulated = 5 * time.Second
	for now := start; now.Sub(start) < simulated; {
		written += 10 * mega
		walks := w.walks
		_, over, next := w.Check(now, written)
		if over {
			t.Fatal("exceeded")
		}
		if w.walks > walks {
			spent += w.took
			longest = max(longest, w.took)
		}
		now = now.Add(next)
	}
	if spent > simulated/walkShare+2*longest || w.walks < 2 {
		t.Errorf("%d walks took %v of %v", w.walks, spent, simulated)
	}
}

// What is seen twice because it was renamed during a walk is not too much: another walk has to say so too.
func TestDiskSeenTwice(t *testing.T) {
	dir := realDir(t)
	put(t, filepath.Join(dir, "file"), mega)
	w := NewWatch([]string{dir}, Use{}, 2*mega)
	defer w.Close()
	times := 1
	w.Held = func(walker *walker) {
		if times--; times >= 0 {
			walker.use.Bytes += 4 * mega
		}
	}
	now := time.Now()
	if added, over, _ := w.Check(now, -1); over || added > 2*mega || w.walks != 2 {
		t.Errorf("once: %d %v, %d walks", added, over, w.walks)
	}
	times = 2
	if added, over, _ := w.Check(now.Add(time.Minute), -1); !over || added < 5*mega {
		t.Errorf("twice: %d %v", added, over)
	}
}

// Trees that cannot be walked through in time are as large as the kernel's own accounts say, and hold up nobody.
func TestDiskDoubt(t *testing.T) {
	dir := realDir(t)
	w := NewWatch([]string{dir}, Measure([]string{dir}), mega)
	defer w.Close()
	stuck := make(chan struct{})
	defer close(stuck)
	w.Held = func(*walker) { <-stuck }
	now := time.Now()
	for _, look := range []struct {
		after   time.Duration
		written int64
		over    bool
	}{{0, 0, false}, {time.Minute, 0, false}, {2 * time.Minute, 9 * mega, false}, {2*time.Minute + 2*w.grace, 9 * mega, true}} {
		start := time.Now()
		if _, over, _ := w.Check(now.Add(look.after), look.written); over != look.over {
			t.Errorf("%+v: %v", look, over)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%+v: it took %v", look, took)
		}
	}
}

func BenchmarkDiskMeasure(b *testing.B) {
	dir := realDir(b)
	manyFiles(b, dir, 20000)
	b.ReportAllocs()
	for b.Loop() {
		if use := Measure([]string{dir}); use.Incomplete {
			b.Fatal(use)
		}
	}
	b.ReportMetric(20000*float64(b.N)/b.Elapsed().Seconds(), "files/s")
}
