package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/spec"
)

// hidden are programs that want five times their limit of memory, in places where it is not theirs at first sight.
var hidden = []struct{ name, program string }{
	{"in threads whose first has ended", `
import ctypes
def eat(): b = touch(320); done()
threading.Thread(target=eat).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)`},
	{"in page tables", `
m = mmap.mmap(-1, 160 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ)
m.madvise(mmap.MADV_NOHUGEPAGE)
for i in range(0, len(m), 2 << 20): m[i]`},
	{"in segments that nobody has attached", `
import ctypes
libc = ctypes.CDLL(None, use_errno=True); libc.shmat.restype = ctypes.c_void_p
for i in range(20):
    k = libc.shmget(0, 16 << 20, 0o1600); p = libc.shmat(k, None, 0)
    ctypes.memset(p, 1, 16 << 20); libc.shmdt(ctypes.c_void_p(p))`},
	{"in files without a name", `
keep = []
for i in range(8):
    keep.append(os.memfd_create("x"))
    for j in range(40): os.write(keep[-1], bytes(b"x" * (1 << 20)))`},
	{"in files on their way between sockets", `
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
for i in range(8):
    f = os.memfd_create("x")
    for j in range(40): os.write(f, bytes(b"x" * (1 << 20)))
    socket.send_fds(a, [b"x"], [f]); os.close(f)`},
	{"in sockets whose sender has gone", `
keep = []
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for i in range(450):
        a, b = socket.socketpair(socket.AF_UNIX, kind); a.setblocking(False); keep.append(b)
        try:
            while True: a.send(b"x" * 65000)
        except OSError: a.close()`},
	{"in connections", `
l = socket.socket(); l.bind(("127.0.0.1", 0)); l.listen(100); keep = []
for i in range(60):
    c = socket.create_connection(l.getsockname()); keep += [c, l.accept()]; c.setblocking(False)
    try:
        while True: c.send(b"x" * 262144)
    except OSError: pass`},
	{"behind many mappings", `
for i in range(4):
    if os.fork() == 0:
        keep = [mmap.mmap(-1, 4096, prot=1 + i % 2 * 2) for i in range(30000)]; time.sleep(60); os._exit(0)
time.sleep(1); b = touch(320)`},
}

// fine are programs that stay within the same limit.
var fine = []struct{ name, program string }{
	{"a file that is read through a mapping", `
f = open("/data/big", "rb"); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); sum(m[::4096])`},
	{"shared memory that is mapped and lies in a file", `
f = open("/dev/shm/f", "w+b"); f.truncate(25 << 20); m = mmap.mmap(f.fileno(), 25 << 20); m[::4096] = b"x" * len(m[::4096])
os.unlink("/dev/shm/f")`},
	{"connections with little in them", `
keep = [socket.socketpair() for i in range(100)]
for a, b in keep: a.send(b"x" * 1000)`},
	{"pipes", `
keep = [os.pipe() for i in range(200)]`},
	{"a child for a moment, again and again", `
b = touch(36)
for i in range(20): subprocess.run(["/bin/true"])`},
}

// TestLimitMemoryHidden: memory counts wherever it is, and what the kernel can have back does not.
func TestLimitMemoryHidden(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		rungs(b, func(b *box, c call) {
			b.file("data/big", strings.Repeat("x", 200<<20))
			p := b.policy(object{
				"limits": object{"memory": "64M", "wall": "60s"},
				"bind":   []object{{"source": b.path("data"), "target": "/data"}},
			})
			whole := func(program string) []string {
				return []string{"python3", "-c", "import mmap, os, socket, subprocess, threading, time\n" +
					"def done(): time.sleep(0.3); print('GOT IT', flush=True); os._exit(0)\n" + touch + program + "\ndone()"}
			}
			free := b.policy(object{"limits": object{"wall": "60s"}, "bind": []object{{"source": b.path("data"), "target": "/data"}}})
			for _, h := range hidden {
				b.t.Run(h.name, func(t *testing.T) {
					b := b.on(t)
					r := b.outcome(c, p, whole(h.program)...)
					throttled := h.name == "in connections" && enforcedBy(r.Limits, "memory") == spec.ByCgroup1
					if r.Outcome != result.MemoryExceeded && !throttled {
						t.Errorf("with a limit: %s %q %q", r.Outcome, r.Stdout, r.Stderr)
					}
					if c.wrap != nil {
						return // the control is the same
					}
					if r := b.outcome(c, free, whole(h.program)...); !strings.Contains(r.Stdout, "GOT IT") {
						t.Errorf("without one: %s %q %q", r.Outcome, r.Stdout, r.Stderr)
					}
				})
			}
			for _, f := range fine {
				b.t.Run(f.name, func(t *testing.T) {
					b := b.on(t)
					if r := b.outcome(c, p, whole(f.program)...); !strings.Contains(r.Stdout, "GOT IT") {
						t.Errorf("%s %q %q", r.Outcome, r.Stdout, r.Stderr)
					}
				})
			}
		})
	})
}

// TestLimitPeakIsTheProgram: the launcher's own memory is not the program's.
func TestLimitPeakIsTheProgram(t *testing.T) {
	flavours(t, func(b *box) {
		rungs(b, func(b *box, c call) {
			for _, limits := range []object{{}, {"memory": "400M"}} {
				p := b.policy(object{"limits": limits})
				if r := b.outcome(c, p, "true"); r.Usage.MaxRSSBytes < 128<<10 || r.Usage.MaxRSSBytes > 6<<20 {
					b.t.Errorf("%v: true had %d bytes", limits, r.Usage.MaxRSSBytes)
				}
				if r := b.outcome(c, p, "python3", "-c", touch+"touch(100)"); r.Usage.MaxRSSBytes < 100<<20 || r.Usage.MaxRSSBytes > 135<<20 {
					b.t.Errorf("%v: 100 MiB are %d bytes", limits, r.Usage.MaxRSSBytes)
				}
			}
		})
	})
}

// TestLimitDiskHidden: what is in writable grants counts, whether we may look at it or not.
func TestLimitDiskHidden(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		for _, h := range []struct{ name, program string }{
			{"in a directory that is shut", `
os.mkdir("shut"); os.chmod("shut", 0o300)
for i in range(8): os.posix_fallocate(os.open("shut/%d" % i, os.O_CREAT | os.O_RDWR), 0, 32 << 20)
os.chmod("shut", 0)`},
			{"on another file system below", `
f = open("below/f", "wb")
for i in range(16): f.write(bytes(b"x" * (8 << 20))); f.flush(); time.sleep(0.02)`},
			{"in a file without a name", `
f = open("f", "wb"); os.unlink("f"); os.posix_fallocate(f.fileno(), 0, 256 << 20)`},
		} {
			b.t.Run(h.name, func(t *testing.T) {
				b := b.on(t)
				ws := b.mkdir("ws")
				c := call{}
				if strings.Contains(h.program, "below") {
					b.mkdir("ws", "below")
					mount := []string{"unshare", "-m", "sh", "-c", `mount -t tmpfs none "$0" && exec "$@"`, filepath.Join(ws, "below")}
					if w.uid != 0 {
						mount[1] = "-rm"
					}
					c.wrap = mount
				}
				p := b.policy(object{"workspace": object{"source": ws}, "limits": object{"disk": "64M", "wall": "30s"}})
				r := b.outcome(c, p, "python3", "-c", "import os, time\n"+h.program+"\ntime.sleep(3)")
				b.expect(r, result.DiskExceeded, result.FindingDisk, 137)
				_ = os.Chmod(filepath.Join(ws, "shut"), 0o700)
				removeAll(ws)
			})
		}
	})
}

// TestLimitWallWhateverItMakes: what the watchers have to look at does not hold up the clock.
func TestLimitWallWhateverItMakes(t *testing.T) {
	flavours(t, func(b *box) {
		needProgram(b.t, "python3")
		for name, program := range map[string]string{
			"descriptors": `
libc = ctypes.CDLL(None)
def apart():
    libc.unshare(0x400) and None
    while True: time.sleep(60)
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
try:
    while True: os.dup(0)
except OSError: pass
for i in range(100): os.fork() or time.sleep(60)`,
			"directories": `
for i in range(100000): os.mkdir("d"); os.chdir("d")`,
			"files": `
for i in range(10**7): open("f%d" % i, "w").close()`,
			"mappings": `
for i in range(8): os.fork() or (mmap_all(), time.sleep(60))`,
		} {
			b.t.Run(name, func(t *testing.T) {
				b := b.on(t)
				p := b.policy(object{
					"workspace": object{"source": b.mkdir("ws")},
					"limits":    object{"disk": "1G", "memory": "256M", "wall": "2s", "nofile": 8000, "pids": 200},
				})
				start := time.Now()
				r := b.outcome(call{}, p, "python3", "-c", "import ctypes, mmap, os, resource, time\n"+
					"def mmap_all(): return [mmap.mmap(-1, 4096, prot=1 + i % 2 * 2) for i in range(60000)]\n"+program+"\ntime.sleep(60)")
				if took := time.Since(start); took > 6*time.Second {
					t.Errorf("it took %v", took)
				}
				if r.Outcome != result.Timeout && r.Outcome != result.MemoryExceeded {
					t.Errorf("%s %q", r.Outcome, r.Stderr)
				}
				removeAll(b.path("ws"))
			})
		}
	})
}
