package integration

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stage is what attacks are aimed at: things of the host that exist while they run.
type stage struct {
	*box
	policy string
	words  *strings.Replacer
	open   *os.File // what the caller leaves open
}

const launcherVariable = "LAUNCHER-VARIABLE-5471"

// newStage sets up every target. The policy grants a working directory and a read-only directory, less two denies.
func newStage(t *testing.T) *stage {
	t.Helper()
	b := newBox(t)
	work, readonly := b.mkdir("work"), b.file("readonly/f", "read-only")
	secret := b.file("private/secret", "THE-SECRET")
	denied := b.file("work/sub/denied", "THE-SECRET")
	b.file("work/hidden/f", "THE-SECRET")
	b.link("work/out", secret)
	b.mustDo(os.Link(denied, b.path("work/linked")), os.Mkdir(b.state, 0o700))
	b.ofOthers()
	open, err := os.Open(secret)
	b.mustDo(err)
	t.Cleanup(func() { open.Close() })
	mark := fmt.Sprintf("4788.%d", time.Now().UnixNano()%1e9)
	victim := exec.Command("sleep", mark)
	victim.Env, victim.Dir = []string{"A=" + launcherVariable}, b.path("private")
	b.mustDo(victim.Start())
	t.Cleanup(func() { _ = victim.Process.Kill(); _ = victim.Wait() })
	abstract, path := fmt.Sprintf("sandboxrun-test-%d-%s", os.Getpid(), mark), b.path("private", "socket")
	b.link("work/socket", path)
	port := greet(t, "tcp", "0.0.0.0:0")
	greet(t, "unix", "@"+abstract)
	greet(t, "unix", path)
	handOut(t, "@"+abstract+"-rights", open)
	s := &stage{box: b, open: open, policy: b.files(work, object{
		"write": []string{work}, "read": []string{b.path("readonly")}, "deny": []string{denied, b.path("work/hidden")},
	})}
	s.words = strings.NewReplacer(
		"$SECRET", secret, "$READONLY", readonly, "$WORK", work, "$DENIED", denied, "$STATE", b.state, "$MARK", mark,
		"$VICTIM", strconv.Itoa(victim.Process.Pid), "$PORT", port, "$UDP", echoDatagrams(t), "$ABSTRACT", abstract, "$SOCKET", path,
		"$KEY", strconv.Itoa(shared(t)), "$CALLERSKEY", callersKey(t), "$VARIABLE", launcherVariable, "$ADDRESSES", addresses(t),
	)
	return s
}

func (b *box) mustDo(errs ...error) {
	b.t.Helper()
	if err := errors.Join(errs...); err != nil {
		b.t.Fatal(err)
	}
}

// ofOthers makes files in the working directory that only root can make: of another user, set to another user, and a device.
func (b *box) ofOthers() {
	b.t.Helper()
	closed := b.file("work/closed", "THE-SECRET")
	b.mustDo(os.Chmod(closed, 0o600))
	if w.uid != 0 {
		return
	}
	setuid := b.path("work/setuid")
	b.mustDo(copyProgram("/usr/bin/id", setuid))
	b.mustDo(os.Chown(closed, 4242, 4242), os.Chown(setuid, 4242, 4242), os.Chmod(setuid, 0o755|os.ModeSetuid),
		unix.Mknod(b.path("work/zero"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
}

var sharedKeys atomic.Uint32

// shared makes shared memory, semaphores and a message queue of the host's, all of one key.
func shared(t *testing.T) int {
	t.Helper()
	key := os.Getpid()<<8 | int(sharedKeys.Add(1)&0xff) // several stages are there at once
	for _, kind := range []struct{ get, control, size uintptr }{
		{unix.SYS_SHMGET, unix.SYS_SHMCTL, 4096}, {unix.SYS_SEMGET, unix.SYS_SEMCTL, 1}, {unix.SYS_MSGGET, unix.SYS_MSGCTL, 0},
	} {
		const flags = unix.IPC_CREAT | unix.IPC_EXCL | 0o600
		args := [3]uintptr{uintptr(key), kind.size, flags}
		if kind.size == 0 {
			args = [3]uintptr{uintptr(key), flags}
		}
		id, _, errno := unix.Syscall(kind.get, args[0], args[1], args[2])
		if errno != 0 {
			t.Fatal(errno)
		}
		t.Cleanup(func() {
			if kind.get == unix.SYS_SEMGET {
				_, _, _ = unix.Syscall(kind.control, id, 0, unix.IPC_RMID)
			} else {
				_, _, _ = unix.Syscall(kind.control, id, unix.IPC_RMID, 0)
			}
		})
	}
	return key
}

// callersKey puts a key into the caller's keyring, where it may, and returns its name.
func callersKey(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("sandboxrun-test-%d", time.Now().UnixNano())
	key, err := unix.AddKey("user", name, []byte("THE-SECRET"), unix.KEY_SPEC_USER_KEYRING)
	if err == nil {
		t.Cleanup(func() { _, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, key, unix.KEY_SPEC_USER_KEYRING, 0, 0) })
	}
	return name
}

// echoDatagrams answers datagrams on the host's loopback. It returns the port.
func echoDatagrams(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	go func() {
		buf := make([]byte, 99)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(buf[:n], from)
		}
	}()
	return strconv.Itoa(c.LocalAddr().(*net.UDPAddr).Port)
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

// handOut passes a descriptor to whoever connects.
func handOut(t *testing.T, address string, file *os.File) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			_, _, _ = c.WriteMsgUnix([]byte("x"), unix.UnixRights(int(file.Fd())), nil)
			_ = c.Close()
		}
	}()
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
		b.exec("one", "--", "sh", "-c", "ls -d /proc/[0-9]* | wc -l; cat /proc/[0-9]*/cmdline").exits(0).hides("4777")
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
