package integration

import (
	"crypto/sha256"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/container/doctor/escapes"
)

// stage is what attacks are aimed at, with a policy that grants a working directory and a read-only directory, less two denies.
type stage struct {
	*box
	*escapes.Stage
	policy string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	b := newBox(t)
	b.mustDo(os.Mkdir(b.state, 0o700))
	targets, err := escapes.NewStage(b.dir, b.state)
	b.mustDo(err)
	t.Cleanup(targets.Close)
	return &stage{box: b, Stage: targets, policy: b.files(targets.Files())}
}

func (b *box) mustDo(errs ...error) {
	b.t.Helper()
	if err := errors.Join(errs...); err != nil {
		b.t.Fatal(err)
	}
}

// TestAnotherSandbox: two sandboxes of one user see nothing of each other.
func TestAnotherSandbox(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		p := b.policy(object{"workspace": object{"source": "tmpfs"}})
		b.create("one", p)
		b.create("two", p)
		b.run("exec", "one", "--", "sh", "-c", "echo THE-SECRET >/tmp/s; echo THE-SECRET >/w/s; echo THE-SECRET >~/s; echo THE-SECRET >/dev/shm/s").exits(0)
		server := b.command(call{}, "exec", "one", "--", "python3", "-c", `
import socket, sys, time
a = socket.create_server(("127.0.0.1", 4777)); b = socket.socket(socket.AF_UNIX); b.bind("\0one"); b.listen(); print("READY", flush=True); time.sleep(60)`)
		out := &lockedBuffer{}
		server.Stdout = out
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the server is up", func() bool { return strings.Contains(out.String(), "READY") })
		look := `cat /tmp/s /w/s ~/s /dev/shm/s; cat /proc/[0-9]*/root/tmp/s; python3 -c '
import socket
for f in (lambda: socket.create_connection(("127.0.0.1", 4777), 2), lambda: socket.socket(socket.AF_UNIX).connect("\0one")):
    try: f(); print("CONNECTED")
    except OSError: pass'; exit 0`
		b.exec("one", "--", "sh", "-c", look).exits(0).prints("THE-SECRET", "CONNECTED\nCONNECTED")
		b.exec("two", "--", "sh", "-c", look).exits(0).hides("THE-SECRET", "CONNECTED")
		for _, id := range []string{"one", "two"} { // nor can another exec of the same sandbox reach its processes
			b.run("exec", id, "--", "sh", "-c", "kill -9 -1; for p in $(seq 2 200); do kill -9 $p; done; exit 0")
		}
		b.exec("one", "--", "sh", "-c", look).exits(0).prints("CONNECTED\nCONNECTED")
		b.exec("one", "--", "sh", "-c", "set -- /proc/[0-9]*; echo $#; cat /proc/[0-9]*/cmdline").exits(0).hides("4777")
		_ = b.run("kill", "one", "KILL").exits(0)
		_ = server.Wait()
		b.run("exec", "two", "--", "sh", "-c", "kill -9 -1; exit 0")
		b.exec("one", "--", "true").exits(0)
		b.exec("two", "--", "true").exits(0)
	})
}

// TestTypingIntoTheTerminal: TIOCSTI puts nothing into the terminal that the launcher was started on, nor does TIOCLINUX.
func TestTypingIntoTheTerminal(t *testing.T) {
	const program = `
import fcntl, os, sys
for fd in (0, 1, 2):
    for number in (0x5412, 0x5412 | 0x100000000, 0x541C):
        try:
            for c in b"TYPED\n": ctypes_ioctl(fd, number, bytes([c]))
        except OSError: pass
try: print("tty", os.open("/dev/tty", os.O_RDWR))
except OSError as e: print(e)
`
	const onTerminal = `
import fcntl, os, pty, sys, termios, time
pid, m = pty.fork()
if pid == 0:
    os.system("stty -echo -icanon")
    os.spawnvp(os.P_WAIT, sys.argv[1], sys.argv[1:])
    queued = fcntl.ioctl(0, termios.FIONREAD, bytes(4)); print("QUEUED", int.from_bytes(queued, "little"), flush=True); os._exit(0)
out = b""
while True:
    try: b = os.read(m, 4096)
    except OSError: break
    if not b: break
    out += b
print(out.decode(errors="replace"))`
	inner := "import ctypes\ndef ctypes_ioctl(fd, n, b):\n    if ctypes.CDLL(None, use_errno=True).syscall(16, fd, ctypes.c_ulong(n), b): raise OSError(ctypes.get_errno(), \"\")\n" + program
	flavours(t, func(b *box) {
		t := b.t
		needProgram(t, "python3")
		p := b.files("", object{})
		control, _ := exec.Command("python3", "-c", onTerminal, "python3", "-c", inner).CombinedOutput()
		if strings.Contains(string(control), "QUEUED 0") {
			t.Logf("without a sandbox: %s", control)
			need(t, "control:TIOCSTI", false)
		}
		for _, args := range [][]string{{"run", "-p", p, "--"}, {"run", "--tty", "-p", p, "--"}, {"run", "--json", "-p", p, "--"}} {
			cmd := exec.Command("python3", append([]string{"-c", onTerminal, w.binary}, append(args, "python3", "-c", inner)...)...)
			cmd.Env = b.env
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "QUEUED 0") {
				t.Errorf("%q: %v\n%s", args, err, out)
			}
		}
	})
}

// TestBinaryStaysWhole: nothing inside can write the launcher's binary, which is process 1 and the reaper, even where
// the binary's own directory is granted for writing by mistake: as root nothing else protects it (CVE-2019-5736).
func TestBinaryStaysWhole(t *testing.T) {
	flavours(t, func(b *box) {
		t := b.t
		mine := b.path("bin", "sandboxrun")
		b.mkdir("bin")
		if err := copyProgram(w.binary, mine); err != nil {
			t.Fatal(err)
		}
		sum := func() [32]byte {
			data, err := os.ReadFile(mine)
			if err != nil {
				t.Fatal(err)
			}
			return sha256.Sum256(data)
		}
		before := sum()
		script := `for p in /proc/[0-9]* /proc/self; do for f in exe fd/3 fd/4 fd/5; do { echo evil >>$p/$f; } 2>/dev/null; { cat $p/exe >/tmp/stolen; } 2>/dev/null; done; done
			test -e /.sandboxrun && echo SHOWN
			exec 2>/dev/null; ln -s /proc/1/exe /tmp/x; echo evil >/tmp/x
			b=/.sandboxrun; echo evil >>$b; truncate -s 0 $b; chmod 777 $b; rm -f $b; mv $b /tmp/y; ln $b /tmp/z && echo evil >>/tmp/z; cp /bin/true $b; exit 0`
		for _, keys := range []object{{}, {"network": object{"mode": "public"}}} { // there it is shown, for proxy-connect
			cmd := exec.Command(mine, "run", "-p", b.policy(keys), "--", "sh", "-c", script)
			cmd.Env = b.env
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Contains(string(out), "SHOWN") != (keys["network"] != nil) {
				t.Errorf("%v: %s", err, out)
			}
		}
		same(t, "the binary", before, sum())
		control := filepath.Join(b.dir, "control")
		if err := copyProgram(mine, control); err != nil {
			t.Fatal(err)
		}
		if f, err := os.OpenFile(control, os.O_WRONLY|os.O_APPEND, 0); err != nil {
			t.Errorf("the caller could not have written it either: %v", err)
		} else {
			f.Close()
		}
	})
}
