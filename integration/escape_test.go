package integration

import (
	"strings"
	"testing"
)

// An attack is a Python program that prints BROKE when it has got what it wanted. Each is run without a sandbox first,
// where it must succeed: an attack that cannot succeed shows nothing.
type attack struct {
	name    string
	program string
	// outside and inside are what differs between the two runs: arguments in which a word such as $VICTIM stands for
	// what the stage has set up. Inside is the same as outside where it is nil.
	outside, inside []string
	privileged      bool // it takes a capability outside, so an unprivileged control is run in a user namespace of its own
	rootOnly        bool // it takes real privilege outside: only the root flavour has a control
	lasting         bool // the control has used the stage up; a new one is set up for the attack
}

// attacks are the ones that need no more than a program and the stage. See escape_stage_test.go for the others.
var attacks = []attack{
	{name: "read a file that is not granted", program: `print("BROKE", open(sys.argv[1]).read())`, outside: []string{"$SECRET"}},
	{
		name: "read it through links of /proc", outside: []string{"$SECRET"},
		program: `
for base in ("/proc/self/root", "/proc/1/root", "/proc/self/cwd/../../../../../../..", "/proc/thread-self/root", "/proc/2/root"):
    attempt(lambda: print("BROKE", open(base + sys.argv[1]).read()))`,
	},
	{name: "list the directory that holds it", program: `os.listdir(os.path.dirname(sys.argv[1])).index("secret"); print("BROKE")`, outside: []string{"$SECRET"}},
	{
		name: "write a read-only grant", outside: []string{"$READONLY"},
		program: `
for f in (lambda: open(sys.argv[1], "a").write(""), lambda: os.utime(sys.argv[1]), lambda: os.truncate(sys.argv[1], os.stat(sys.argv[1]).st_size),
          lambda: os.chmod(sys.argv[1], 0o644), lambda: os.rename(sys.argv[1], sys.argv[1]), lambda: os.link(sys.argv[1], sys.argv[1] + ".x"),
          lambda: os.setxattr(sys.argv[1], "user.x", b"y")):
    attempt(lambda: (f(), print("BROKE")))`,
	},
	{
		name: "write it through its descriptor", outside: []string{"$READONLY"},
		program: `fd = os.open(sys.argv[1], os.O_RDONLY); os.close(os.open("/proc/self/fd/%d" % fd, os.O_RDWR)); print("BROKE")`,
	},
	{
		name: "see a process of the host", outside: []string{"$MARK"},
		program: `
for p in os.listdir("/proc"):
    if p.isdigit() and int(p) != os.getpid():
        attempt(lambda: sys.argv[1].encode() in open("/proc/%s/cmdline" % p, "rb").read().split(b"\0") and print("BROKE", p))`,
	},
	{name: "signal a process of the same user", lasting: true, program: `os.kill(int(sys.argv[1]), 0); print("BROKE")`, outside: []string{"$VICTIM"}},
	{
		name: "open a process of the same user", outside: []string{"$VICTIM"},
		program: `os.pidfd_open(int(sys.argv[1])); print("BROKE")`,
	},
	{
		name: "trace a process of the launcher's", outside: []string{"$VICTIM"}, inside: []string{"1"}, lasting: true,
		program: `
r = call(101, 16, int(sys.argv[1]), 0, 0) # PTRACE_ATTACH
if r == 0: print("BROKE"); os.waitpid(int(sys.argv[1]), 0x40000000); call(101, 17, int(sys.argv[1]), 0, 0)
else: print("errno", ctypes.get_errno())`,
	},
	{
		name: "read the environment of a process of the launcher's", outside: []string{"$VICTIM"}, inside: []string{"1"},
		program: `print("BROKE", open("/proc/%s/environ" % sys.argv[1], "rb").read())`,
	},
	{
		name: "read its memory", outside: []string{"$VICTIM"}, inside: []string{"1"},
		program: `
at = int(open("/proc/%s/maps" % sys.argv[1]).readline().split("-")[0], 16)
m = open("/proc/%s/mem" % sys.argv[1], "rb"); m.seek(at); m.read(16); print("BROKE")`,
	},
	{name: "go through its root", program: `os.listdir("/proc/%s/root" % sys.argv[1]); print("BROKE")`, outside: []string{"$VICTIM"}, inside: []string{"1"}},
	{name: "go through its directory", program: `os.listdir("/proc/%s/cwd" % sys.argv[1]); print("BROKE")`, outside: []string{"$VICTIM"}, inside: []string{"1"}},
	{
		name: "follow its descriptors", outside: []string{"$VICTIM"}, inside: []string{"1"},
		program: `
for n in range(64):
    attempt(lambda: print("BROKE", os.readlink("/proc/%s/fd/%d" % (sys.argv[1], n))))
    attempt(lambda: (os.close(os.open("/proc/%s/fd/%d" % (sys.argv[1], n), os.O_RDONLY | os.O_NONBLOCK)), print("BROKE open", n)))`,
	},
	{name: "open its executable", program: `open("/proc/%s/exe" % sys.argv[1], "rb").read(4); print("BROKE")`, outside: []string{"$VICTIM"}, inside: []string{"1"}},
	{
		name: "enter its namespaces", outside: []string{"self"}, inside: []string{"1"},
		program: `
for n in ("mnt", "net", "pid", "user", "ipc"):
    attempt(lambda: (os.open("/proc/%s/ns/%s" % (sys.argv[1], n), os.O_RDONLY), print("BROKE", n)))`,
	},
	{
		name: "find the launcher's variables in any process", outside: []string{"$VARIABLE"},
		program: `
for p in os.listdir("/proc"):
    if p.isdigit():
        attempt(lambda: sys.argv[1].encode() in open("/proc/%s/environ" % p, "rb").read() and print("BROKE", p))`,
	},
	{
		name: "reach a port of the host's loopback", outside: []string{"$PORT"},
		program: `
for host in ("127.0.0.1", "localhost", "127.0.0.2", "0.0.0.0", "::ffff:127.0.0.1"):
    attempt(lambda: print("BROKE", host, socket.create_connection((host, int(sys.argv[1])), 3).recv(99)))`,
	},
	{
		name: "reach the host by its own addresses", outside: []string{"$PORT", "$ADDRESSES"},
		program: `
for host in sys.argv[2].split(","):
    attempt(lambda: print("BROKE", host, socket.create_connection((host, int(sys.argv[1])), 3).recv(99)))`,
	},
	{
		name: "reach an abstract socket", outside: []string{"$ABSTRACT"},
		program: `s = socket.socket(socket.AF_UNIX); s.connect("\0" + sys.argv[1]); print("BROKE", s.recv(99))`,
	},
	{
		name: "reach a socket by a path that is not granted", outside: []string{"$SOCKET"},
		program: `s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print("BROKE", s.recv(99))`,
	},
	{
		name: "attach shared memory of the host", outside: []string{"$SHM"},
		program: `
libc.shmget.restype = ctypes.c_int
i = libc.shmget(int(sys.argv[1]), 4096, 0)
print("BROKE" if i >= 0 else ctypes.get_errno())`,
	},
	{name: "use the keyrings", program: `r = call(250, 0, -3, 1); print("BROKE" if r >= 0 else ctypes.get_errno())`},
	{name: "add a key", program: `r = call(248, b"user", b"sandboxrun-test", b"x", 1, -1); print("BROKE" if r >= 0 else ctypes.get_errno())`},
	{name: "mount", privileged: true, program: `r = libc.mount(b"none", b"/tmp", b"tmpfs", 0, None); print("BROKE" if r == 0 else ctypes.get_errno())`},
	{
		name: "mount by the new system calls", privileged: true,
		program: `r = call(430, b"tmpfs", 0); print("BROKE" if r >= 0 else ctypes.get_errno())`, // fsopen
	},
	{
		name: "clone a mount tree", privileged: true,
		program: `r = call(428, -100, b"/", 0x8001); print("BROKE" if r >= 0 else ctypes.get_errno())`, // open_tree, OPEN_TREE_CLONE | AT_RECURSIVE
	},
	{
		name: "unmount", privileged: true,
		program: `
libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)
for p in (b"/tmp", b"/proc", b"/usr", b"/dev/shm"): r = libc.umount2(p, 2); r == 0 and print("BROKE", p)`,
	},
	{
		name: "remount", privileged: true, outside: []string{"/tmp"}, inside: []string{"$READONLY"},
		program: `
libc.mount(b"/tmp", b"/tmp", None, 4096, None)
r = libc.mount(None, sys.argv[1].encode(), None, 32 | 4096, None); print("BROKE" if r == 0 else ctypes.get_errno())`,
	},
	{name: "change the root", privileged: true, program: `os.chroot("/usr"); print("BROKE")`},
	{name: "make a user namespace", program: `r = libc.unshare(0x10000000); print("BROKE" if r == 0 else ctypes.get_errno())`},
	{name: "clone into a user namespace", program: `r = call(56, 0x10000000 | 17, 0, 0, 0, 0); r == 0 and os._exit(0); print("BROKE" if r > 0 else ctypes.get_errno())`},
	{name: "make a mount namespace", privileged: true, program: `r = libc.unshare(0x20000); print("BROKE" if r == 0 else ctypes.get_errno())`},
	{name: "set the host name", privileged: true, program: `n = socket.gethostname().encode(); r = libc.sethostname(n, len(n)); print("BROKE" if r == 0 else ctypes.get_errno())`},
	{name: "bring a network device up", privileged: true, program: `
s = socket.socket(); import fcntl, struct
fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 0x49)); print("BROKE")`},
	{name: "open a packet socket", privileged: true, program: `socket.socket(17, 3, 3); print("BROKE")`},
	{name: "open a raw socket", privileged: true, program: `socket.socket(2, 3, 1); print("BROKE")`},
	{name: "make a device", rootOnly: true, outside: []string{"$WORK"}, program: `os.mknod(sys.argv[1] + "/dev" + str(os.getpid()), 0o600 | 0o020000, os.makedev(1, 3)); print("BROKE")`},
	{name: "open sysrq-trigger", rootOnly: true, program: `os.open("/proc/sysrq-trigger", os.O_WRONLY); print("BROKE")`},
	{name: "open core_pattern", rootOnly: true, program: `os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY); print("BROKE")`},
	{
		name: "open any setting of the kernel", rootOnly: true, program: `
for top in ("/proc/sys", "/sys"):
    for d, _, files in os.walk(top):
        for f in files[:40]:
            p = os.path.join(d, f)
            attempt(lambda: (os.stat(p).st_mode & 0o222 and os.close(os.open(p, os.O_WRONLY | os.O_NONBLOCK)) is None and print("BROKE", p)))
        if len(d) > 60: break`,
	},
	{name: "read the kernel's log", rootOnly: true, program: `r = libc.klogctl(10, None, 0); print("BROKE" if r >= 0 else ctypes.get_errno())`},
	{name: "write the kernel's log", rootOnly: true, program: `os.open("/dev/kmsg", os.O_WRONLY); print("BROKE")`},
	{name: "change to another user", rootOnly: true, program: `os.setgroups([]); os.setuid(4242); print("BROKE")`},
	{name: "give a file away", rootOnly: true, outside: []string{"$WORK"}, program: `open(sys.argv[1] + "/f", "w"); os.chown(sys.argv[1] + "/f", 4242, 4242); print("BROKE")`},
	{name: "raise a limit", rootOnly: true, program: `
import resource
s, h = resource.getrlimit(resource.RLIMIT_RTPRIO); resource.setrlimit(resource.RLIMIT_RTPRIO, (s, h + 1)); print("BROKE")`},
	{name: "read another user's file", rootOnly: true, outside: []string{"$WORK/closed"}, program: `print("BROKE", open(sys.argv[1]).read())`},
	{name: "load a kernel module", rootOnly: true, program: `r = call(175, b"x", 1, b""); print("BROKE" if ctypes.get_errno() == 8 else ctypes.get_errno())`},
	{name: "become what a setuid program is", program: setuidProgram},
}

// setuidProgram starts su, which waits for a password, and looks at whose rights it has.
const setuidProgram = `
import subprocess, time
p = subprocess.Popen(["/usr/bin/su", "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
for _ in range(50):
    ids = [l.split()[1:3] for l in open("/proc/%d/status" % p.pid) if l.startswith("Uid")]
    if ids and ids[0][0] != ids[0][1]: print("BROKE", ids)
    time.sleep(0.01)
p.kill()`

const prelude = `
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
call = libc.syscall
def attempt(f):
    try: f()
    except (OSError, ValueError): pass
`

// TestEscapes runs every attack without a sandbox and in one.
func TestEscapes(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		for _, a := range attacks {
			t.Run(strings.ReplaceAll(a.name, " ", "-"), func(t *testing.T) {
				if a.rootOnly && w.uid != 0 {
					t.Skip("without privilege it fails outside as well")
				}
				s := newStage(t)
				if out := s.outside(a); !strings.Contains(out, "BROKE") {
					needControl(t, a, out)
				}
				if a.lasting {
					s = newStage(t)
				}
				if out := s.inside(a); strings.Contains(out, "BROKE") {
					t.Errorf("it succeeded:\n%s", out)
				}
			})
		}
	})
}

// needControl says that a machine does not let an attack succeed even outside: a hardened kernel.
func needControl(t *testing.T, a attack, out string) {
	t.Helper()
	t.Logf("without a sandbox: %s", out)
	need(t, "control:"+strings.ReplaceAll(a.name, " ", "-"), false)
}
