package integration

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// fuse mounts a FUSE file system whose server never answers, or which has none any more.
func (b *box) fuse(at string, dead bool) {
	b.t.Helper()
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	need(b.t, "fuse", err == nil)
	b.t.Cleanup(func() { dev.Close() })
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", dev.Fd())
	err = syscall.Mount("test", at, "fuse", syscall.MS_NOSUID|syscall.MS_NODEV, options)
	need(b.t, "fuse", err == nil)
	b.t.Cleanup(func() { _ = syscall.Unmount(at, syscall.MNT_DETACH) })
	if dead {
		dev.Close()
	}
}

// TestSilentMount: a file system that does not answer, below a grant, in the base or below the working directory, keeps nothing from starting
// that does not need it; what needs it is refused, and does not wait for ever.
func TestSilentMount(t *testing.T) {
	needRoot(t)
	for _, dead := range []bool{false, true} {
		t.Run(fmt.Sprintf("dead=%t/root", dead), func(t *testing.T) { newBox(t).besideSilence(dead) })
		t.Run(fmt.Sprintf("dead=%t/user", dead), func(t *testing.T) {
			need(t, "testuser", w.other != nil)
			b := newBox(t)
			uid, _ := strconv.Atoi(w.other.Uid)
			gid, _ := strconv.Atoi(w.other.Gid)
			b.become(uid, gid)
			b.besideSilence(dead)
		})
	}
}

func (b *box) besideSilence(dead bool) {
	work, at := b.mkdir("work"), b.mkdir("work/mnt")
	b.file("work/src/f", "data")
	if len(b.as) > 0 {
		uid, _ := strconv.Atoi(w.other.Uid)
		b.mustDo(os.Chown(work, uid, -1), os.Chown(b.path("work/src"), uid, -1))
	}
	write := b.files(work, object{"write": []string{work}})
	host := b.files("", object{"base": "host", "read": []string{b.path("work/src")}})
	needs := b.files("", object{"read": []string{at}})
	b.fuse(at, dead)
	begin := time.Now()
	granted := b.sh(write, "cat src/f; echo x >src/g && cat src/g").exits(0).prints("data", "x")
	b.call(call{dir: work}, "run", "--", "cat", "src/f").exits(0).prints("data")
	b.run("run", "-p", host, "--", "cat", b.path("work/src/f")).exits(0).prints("data")
	if took := time.Since(begin); took > 10*time.Second {
		b.t.Errorf("it took %v", took)
	}
	if len(b.as) > 0 {
		return
	}
	if idmapProblem() == nil {
		granted.complains(at, "left out", "fuse")
		b.sh(write, "ls -A mnt").exits(0)
	}
	b.run("run", "-p", needs, "--", "true").exits(125).complains(at)
}
