package disk

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What has no name any more takes space as long as somebody holds it.
func TestDiskHeldOpen(t *testing.T) {
	dir := realDir(t)
	nameless := func() *os.File {
		path := filepath.Join(dir, "file")
		put(t, path, 2*mega)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		return f
	}
	look := func(what string, written, least, most int64) {
		t.Helper()
		w := NewWatch([]string{dir}, Measure([]string{dir}), mega)
		defer w.Close()
		w.Held = HeldBy(func() []int { return []int{os.Getpid()} })
		if added, over, _ := w.Check(time.Now(), written); added < least || added > most || over != (least > mega) {
			t.Errorf("%s: %d %v", what, added, over)
		}
	}
	look("nothing", 9*mega, 0, 0)

	f := nameless()
	look("open", 0, 2*mega, 2*mega)
	second, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	look("open twice", 0, 2*mega, 2*mega)
	unix.Close(second)

	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(int(f.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	f.Close()
	look("in flight", 3*mega, 3*mega, 3*mega)
	unix.Close(pair[0])
	unix.Close(pair[1])
	look("closed", 9*mega, 0, 0)

	f = nameless()
	m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	look("open and mapped", 9*mega, 2*mega, 2*mega)
	f.Close()
	look("mapped", 3*mega, 3*mega, 3*mega)
	if err := unix.Munmap(m); err != nil {
		t.Fatal(err)
	}
	look("unmapped", 9*mega, 0, 0)

	// A thread with descriptors of its own.
	opened, end := make(chan bool), make(chan bool)
	onOtherThread(func() {
		if err := unix.Unshare(unix.CLONE_FILES); err != nil {
			t.Error(err)
		}
		path := filepath.Join(dir, "file")
		put(t, path, 2*mega)
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
		}
		_ = os.Remove(path)
		opened <- true
		<-end
		unix.Close(fd)
		end <- true
	})
	<-opened
	look("of a thread", 0, 2*mega, 2*mega)
	end <- true
	<-end
	look("at the end", 9*mega, 0, 0)
}

// onOtherThread runs what spoils its thread, which then ends. Not the first one: it cannot end, and is what /proc/self
// shows.
func onOtherThread(spoil func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			done := make(chan bool)
			onOtherThread(func() { close(done); spoil() })
			<-done // this one stays taken until then
			return
		}
		spoil()
	}()
}
