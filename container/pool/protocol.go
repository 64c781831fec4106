package pool

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A message is a list of texts, each with a zero byte at its end. forkexec/pool.c writes and reads the same.
//
//	caller -> pool   kind, id, policy, owner's pid or empty, owner's start time, record directory, options
//	pool -> caller   "ok", id, directory to start in or empty    | "no", why: the caller goes the ordinary way
//	caller -> pool   "mine": from here on the sandbox is the caller's. Without this word the pool removes it again
//	caller -> pool   "end", only if its kind is run: the pool removes the sandbox
//	pool -> caller   "ok" when that is done
const (
	kindRun    = "run"
	kindCreate = "create"
	wordOK     = "ok"
	wordNo     = "no"
	wordMine   = "mine"
	wordEnd    = "end"
	// optionQuiet: the caller has no way to print warnings.
	optionQuiet = "quiet"
	// optionEnv: the program gets variables of its own, which the policy may depend on.
	optionEnv = "env"

	fields     = 7
	maxMessage = 16 << 10 // bytes
	socketName = "socket"
	patience   = 10 * time.Second // for the other end
)

func send(fd int, texts ...string) error {
	message := strings.Join(texts, "\x00") + "\x00"
	if len(message) > maxMessage {
		return errors.New("the message is too long")
	}
	for {
		err := unix.Sendto(fd, []byte(message), unix.MSG_NOSIGNAL, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// receive returns no message, and no error, when the other end has been closed.
func receive(fd int) ([]string, error) {
	buf := make([]byte, maxMessage+1)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || n <= 0:
			return nil, err
		case n > maxMessage || buf[n-1] != 0:
			return nil, errors.New("it is no message of a pool's")
		}
		return strings.Split(string(buf[:n-1]), "\x00"), nil
	}
}

// address is the socket in a pool's directory, however long the path to that is.
func address(dir *os.File) *unix.SockaddrUnix {
	return &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName)}
}

func newSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make socket: %w", err)
	}
	return fd, nil
}

// bePatient bounds how long a call on a socket waits.
func bePatient(fd int, d time.Duration) error {
	t := unix.NsecToTimeval(int64(d))
	return errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &t), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &t))
}
