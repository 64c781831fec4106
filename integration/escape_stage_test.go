package integration

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stage is what attacks are aimed at: things of the host that exist while they run.
type stage struct {
	*box
	policy string
	words  *strings.Replacer
}

const launcherVariable = "LAUNCHER-VARIABLE-5471"

// newStage sets up every target. The policy grants a working directory and a read-only directory, nothing more.
func newStage(t *testing.T) *stage {
	t.Helper()
	b := newBox(t)
	work, readonly := b.mkdir("work"), b.file("readonly/f", "read-only")
	secret := b.file("private/secret", "THE-SECRET")
	closed := b.file("work/closed", "THE-SECRET")
	if w.uid == 0 {
		if err := os.Chown(closed, 4242, 4242); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(closed, 0o600); err != nil {
		t.Fatal(err)
	}
	mark := fmt.Sprintf("4788.%d", time.Now().UnixNano()%1e9)
	victim := exec.Command("sleep", mark)
	victim.Env, victim.Dir = []string{"A=" + launcherVariable}, b.path("private")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = victim.Process.Kill(); _ = victim.Wait() })
	abstract, path := fmt.Sprintf("sandboxrun-test-%d-%s", os.Getpid(), mark), b.path("private", "socket")
	port := greet(t, "tcp", "0.0.0.0:0")
	greet(t, "unix", "@"+abstract)
	greet(t, "unix", path)
	key := os.Getpid()<<8 | 0x53
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	s := &stage{box: b, policy: b.files(work, object{"write": []string{work}, "read": []string{b.path("readonly")}})}
	s.words = strings.NewReplacer(
		"$SECRET", secret, "$READONLY", readonly, "$WORK", work, "$MARK", mark, "$VICTIM", strconv.Itoa(victim.Process.Pid), "$PORT", port,
		"$ABSTRACT", abstract, "$SOCKET", path, "$SHM", strconv.Itoa(key), "$VARIABLE", launcherVariable, "$ADDRESSES", addresses(t),
	)
	return s
}

// greet listens and says hello to whoever connects. It returns the port.
func greet(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, "HELLO")
			_ = c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// addresses are this machine's own, of IPv4: a loopback address too where it has no other.
func addresses(t *testing.T) string {
	t.Helper()
	list := []string{"127.0.0.1"}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			list = append(list, n.IP.String())
		}
	}
	return strings.Join(list, ",")
}

func (s *stage) line(a attack, args []string) []string {
	line := []string{"python3", "-c", prelude + a.program}
	for _, arg := range args {
		line = append(line, s.words.Replace(arg))
	}
	return line
}

// outside runs an attack without a sandbox, and returns all that it printed.
func (s *stage) outside(a attack) string {
	s.t.Helper()
	line := s.line(a, a.outside)
	switch {
	case a.privileged && w.uid != 0:
		line = append([]string{"unshare", "-Urmnu"}, line...)
	case a.privileged:
		line = append([]string{"unshare", "-mnu", "--propagation", "private"}, line...)
	}
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Dir, cmd.Env = s.path("work"), append(s.env, "LAUNCHER="+launcherVariable)
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// inside runs it in a sandbox.
func (s *stage) inside(a attack) string {
	s.t.Helper()
	args := a.inside
	if args == nil {
		args = a.outside
	}
	got := s.call(call{env: []string{"LAUNCHER=" + launcherVariable}}, append([]string{"run", "-p", s.policy, "--"}, s.line(a, args)...)...)
	if got.status == 125 || got.status == 127 {
		s.t.Errorf("the attack did not run: %v", got)
	}
	return got.stdout + got.stderr
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
		b.run("exec", "one", "--", "sh", "-c", look).exits(0).prints("THE-SECRET", "CONNECTED\nCONNECTED")
		b.run("exec", "two", "--", "sh", "-c", look).exits(0).hides("THE-SECRET", "CONNECTED")
		b.run("exec", "one", "--", "sh", "-c", "ls -d /proc/[0-9]* | wc -l; cat /proc/[0-9]*/cmdline").exits(0).hides("4777")
		_ = b.run("kill", "one", "KILL").exits(0)
		_ = server.Wait()
		b.run("exec", "two", "--", "sh", "-c", "kill -9 -1; exit 0")
		b.run("exec", "one", "--", "true").exits(0)
		b.run("exec", "two", "--", "true").exits(0)
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
			exec 2>/dev/null; ln -s /proc/1/exe /tmp/x; echo evil >/tmp/x; exit 0`
		cmd := exec.Command(mine, "run", "-p", b.files("", object{}), "--", "sh", "-c", script)
		cmd.Env = b.env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
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
