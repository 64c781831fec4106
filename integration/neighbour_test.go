package integration

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// hog takes all that it can have of what the kernel counts for each user or for the whole machine, and keeps it.
const hog = `
import ctypes, fcntl, os, select, signal, socket, time
libc, keep = ctypes.CDLL(None, use_errno=True), []
def must(r):
    if r < 0: raise OSError(ctypes.get_errno(), "refused")
    return r
def all_of(name, take, most):
    n = 0
    try:
        while n < most: keep.append(take()); n += 1
    except (OSError, RuntimeError) as e: pass
    print(name, n, flush=True)
class Value(ctypes.Union): _fields_ = [("i", ctypes.c_int), ("p", ctypes.c_void_p)]
signal.pthread_sigmask(signal.SIG_BLOCK, {35})
all_of("inotify", lambda: must(libc.inotify_init1(0)), 500)
if keep: all_of("watches", lambda: must(libc.inotify_add_watch(keep[0], b"/usr/bin/" + os.listdir("/usr/bin")[len(keep) % 200].encode(), 0x302)), 100)
all_of("queues", lambda: must(libc.mq_open(b"/q%d" % len(keep), os.O_CREAT | os.O_RDWR, 0o600, None)), 500)
all_of("signals", lambda: must(libc.sigqueue(os.getpid(), 35, Value(0))), 60000)
all_of("pipes", lambda: fcntl.fcntl(os.pipe()[1], 1031, 1 << 20), 100)
all_of("terminals", lambda: os.openpty(), 500)
all_of("segments", lambda: must(libc.shmget(0, 4096, 0o1600)), 500)
p = select.epoll()
all_of("watched", lambda: p.register(os.dup(0 if not keep else os.pipe()[0]), 1), 200)
all_of("sockets", lambda: socket.socketpair(), 200)
all_of("files", lambda: os.open("/dev/null", 0), 100000)
def spin():
    if os.fork() == 0:
        while True: pass
all_of("processes", spin, 100)
print("READY", flush=True)
time.sleep(60)
`

// wants is a program that wants a little of everything.
const wants = `
import ctypes, os, select, signal, socket, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
class Value(ctypes.Union): _fields_ = [("i", ctypes.c_int), ("p", ctypes.c_void_p)]
def want(name, r):
    if r < 0: print("NO", name, ctypes.get_errno())
for _ in range(8):
    n = libc.inotify_init1(0)
    want("inotify", n); want("watch", libc.inotify_add_watch(n, b"/usr/bin", 0x302))
want("queue", libc.mq_open(b"/mine", os.O_CREAT | os.O_RDWR, 0o600, None))
signal.pthread_sigmask(signal.SIG_BLOCK, {35})
for _ in range(100): want("signal", libc.sigqueue(os.getpid(), 35, Value(0)))
for _ in range(20): r, w = os.pipe(); os.write(w, b"x" * 4096)
for _ in range(4): os.openpty()
want("segment", libc.shmget(0, 4096, 0o1600))
e = select.epoll(); [e.register(os.pipe()[0], 1) for _ in range(50)]
[socket.socketpair() for _ in range(20)]
t = [threading.Thread(target=int) for _ in range(4)]; [x.start() for x in t]; [x.join() for x in t]
subprocess.run(["/bin/true"], check=True)
print("fine")
`

// TestHostileNeighbour: whatever one sandbox takes, another one of the same caller starts and has what programs want.
func TestHostileNeighbour(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		p := b.policy(object{"limits": object{"memory": "256M", "pids": 60, "nofile": 2000, "cpus": 1, "wall": "100s"}})
		b.create("one", p)
		b.create("two", p)
		median := func() time.Duration {
			var took []time.Duration
			for range 5 {
				start := time.Now()
				same(b.t, "what it could not have", "fine\n", b.exec("two", "--", "python3", "-c", wants).exits(0).stdout)
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			return took[len(took)/2]
		}
		alone := median()
		name := b.detach("one", "python3", "-c", hog)
		taken := ""
		for range 600 {
			if taken = b.run("logs", "one", name).stdout; strings.Contains(taken, "READY") {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if b.t.Logf("it took %s", strings.ReplaceAll(taken, "\n", ", ")); !strings.Contains(taken, "READY") {
			b.t.Fatalf("the hog did not get ready: %q", taken)
		}
		beside := median()
		b.t.Logf("%v alone, %v beside it", alone, beside)
		// One of two processors is the hog's. The rest is for what else the machine does.
		if beside > 4*alone+2*time.Second {
			b.t.Errorf("it takes %v, and %v alone", beside, alone)
		}
		start := time.Now()
		same(b.t, "what it could not have", "fine\n", b.run("run", "--policy", p, "--", "python3", "-c", wants).exits(0).stdout)
		if took := time.Since(start); took > 20*time.Second {
			b.t.Errorf("a sandbox of its own took %v", took)
		}
		b.run("delete", "one").exits(0)
		b.run("delete", "two").exits(0)
	})
}
