package escapes

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// variable is in the environment of the launcher and of another process.
const variable = "LAUNCHER-VARIABLE-5471"

// Environ is the variable for the environment of the command that runs attacks.
func Environ() string { return "LAUNCHER=" + variable }

// secret is in every file that no attack may read.
const secret = "THE-SECRET"

// Stage is what attacks are aimed at: things of the host that exist while they run.
type Stage struct {
	Dir   string            // it has all files
	Words *strings.Replacer // of attacks' arguments
	Open  *os.File          // what the caller leaves open
	// Nested: each attack is made from namespaces of the program's own.
	Nested bool
	ended  []func()
	err    error
}

// NewStage sets up every target in an empty directory. state is a state directory of the launcher's.
func NewStage(dir, state string) (*Stage, error) {
	s := &Stage{Dir: dir}
	s.build(state)
	if s.err != nil {
		s.Close()
		return nil, fmt.Errorf("set up targets for attacks: %w", s.err)
	}
	return s, nil
}

// Files are the keys of the policy's files that the attacks need: the working directory, which the program may write, what it may read,
// and what is denied.
func (s *Stage) Files() (workdir string, files map[string]any) {
	return s.path("work"), map[string]any{
		"write": []string{s.path("work")}, "read": []string{s.path("readonly")}, "deny": []string{s.path("work/sub/denied"), s.path("work/hidden")},
	}
}

// Close ends what the stage has started. Its directory stays.
func (s *Stage) Close() {
	for _, end := range slices.Backward(s.ended) {
		end()
	}
}

func (s *Stage) must(errs ...error) { s.err = errors.Join(append(errs, s.err)...) }

func (s *Stage) path(name string) string { return filepath.Join(s.Dir, name) }

func (s *Stage) file(name string) string {
	p := s.path(name)
	s.must(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(secret), 0o644)) //nolint:gosec // everybody may read it, and no attack
	return p
}

func (s *Stage) build(state string) {
	hidden, readonly := s.file("private/secret"), s.file("readonly/f")
	denied := s.file("work/sub/denied")
	s.file("work/hidden/f")
	s.must(os.WriteFile(readonly, []byte("read-only"), 0o644), os.Symlink(hidden, s.path("work/out")), os.Link(denied, s.path("work/linked"))) //nolint:gosec // as above
	s.ofOthers()
	var err error
	s.Open, err = os.Open(hidden)
	s.must(err)
	s.ended = append(s.ended, func() { s.Open.Close() })
	mark := fmt.Sprintf("4788.%d", time.Now().UnixNano()%1e9)
	victim := exec.Command("sleep", mark)
	victim.Env, victim.Dir = []string{"A=" + variable}, s.path("private")
	if err := victim.Start(); err != nil {
		s.must(err)
		return
	}
	s.ended = append(s.ended, func() { _, _ = victim.Process.Kill(), victim.Wait() })
	abstract, at := fmt.Sprintf("sandboxrun-test-%d-%s", os.Getpid(), mark), s.path("private/socket")
	s.must(os.Symlink(at, s.path("work/socket")))
	port := s.greet("tcp", "0.0.0.0:0")
	s.greet("unix", "@"+abstract)
	s.greet("unix", at)
	s.handOut("@"+abstract+"-rights", s.Open)
	addresses, err := Addresses()
	s.must(err)
	s.Words = strings.NewReplacer(
		"$SECRET", hidden, "$READONLY", readonly, "$WORK", s.path("work"), "$DENIED", denied, "$STATE", state, "$MARK", mark,
		"$VICTIM", strconv.Itoa(victim.Process.Pid), "$PORT", port, "$UDP", s.echo(), "$ABSTRACT", abstract, "$SOCKET", at,
		"$KEY", strconv.Itoa(s.shared()), "$CALLERSKEY", s.callersKey(), "$VARIABLE", variable, "$ADDRESSES", addresses,
	)
}

// ofOthers makes files in the working directory that only root can make: of another user, set to another user, and a device.
func (s *Stage) ofOthers() {
	closed := s.file("work/closed")
	s.must(os.Chmod(closed, 0o600))
	if os.Geteuid() != 0 {
		return
	}
	const other = 4242
	setuid := s.path("work/setuid")
	s.must(copyFile("/usr/bin/id", setuid), os.Chown(closed, other, other), os.Chown(setuid, other, other), os.Chmod(setuid, 0o755|fs.ModeSetuid),
		unix.Mknod(s.path("work/zero"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755) //nolint:gosec // a program
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

var sharedKeys atomic.Uint32 //nolint:gochecknoglobals // several stages are there at once

// shared makes shared memory, semaphores and a message queue of the host's, all of one key.
func (s *Stage) shared() int {
	key := os.Getpid()<<8 | int(sharedKeys.Add(1)&0xff)
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
			s.must(errno)
			continue
		}
		s.ended = append(s.ended, func() {
			remove := [2]uintptr{unix.IPC_RMID}
			if kind.get == unix.SYS_SEMGET {
				remove = [2]uintptr{0, unix.IPC_RMID}
			}
			_, _, _ = unix.Syscall(kind.control, id, remove[0], remove[1])
		})
	}
	return key
}

// callersKey puts a key into the caller's keyring, where it may, and returns its name.
func (s *Stage) callersKey() string {
	name := fmt.Sprintf("sandboxrun-test-%d", time.Now().UnixNano())
	key, err := unix.AddKey("user", name, []byte(secret), unix.KEY_SPEC_USER_KEYRING)
	if err == nil {
		s.ended = append(s.ended, func() { _, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, key, unix.KEY_SPEC_USER_KEYRING, 0, 0) })
	}
	return name
}

// EchoDatagrams answers datagrams on the host's loopback until it is closed.
func EchoDatagrams() (port string, c net.PacketConn, err error) {
	if c, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
		return "", nil, err
	}
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
	return strconv.Itoa(c.LocalAddr().(*net.UDPAddr).Port), c, nil
}

func (s *Stage) echo() string {
	port, c, err := EchoDatagrams()
	if err != nil {
		s.must(err)
		return ""
	}
	s.ended = append(s.ended, func() { _ = c.Close() })
	return port
}

// greet listens and writes hello to each client. It returns the port.
func (s *Stage) greet(network, address string) string {
	l, err := net.Listen(network, address)
	if err != nil {
		s.must(err)
		return ""
	}
	s.ended = append(s.ended, func() { _ = l.Close() })
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

// handOut passes a descriptor to each client.
func (s *Stage) handOut(address string, file *os.File) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		s.must(err)
		return
	}
	s.ended = append(s.ended, func() { _ = l.Close() })
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

// Addresses are this machine's own, of IPv4, with commas between them: a loopback address too where it has no other.
func Addresses() (string, error) {
	list := []string{"127.0.0.1"}
	all, err := net.InterfaceAddrs()
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			list = append(list, n.IP.String())
		}
	}
	return strings.Join(list, ","), err
}
