package pool

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// A message is a list of texts, each with a zero byte at its end. forkexec/pool.c writes and reads the same.
//
//	caller -> pool   kind, id, policy, owner's pid or empty, owner's start time, record directory, options. For the owner that create finds
//	               by itself: "caller", the pid of who called it
//	pool -> caller   "ok", id, directory to start in or empty    | "no", why: the caller goes the ordinary way
//
//	               To who asks early also what process 1 calls the sandbox until it is complete, and then, before which no program may be started:
//
//	pool -> caller   "sure"    | "no", why
//	caller -> pool   "mine": from here on the sandbox is the caller's. Without this word the pool removes it again
//	               or "once": it is, for as long as it keeps the connection; then the pool removes it
//
//	caller -> pool   "delete", id
//	pool -> caller   "ok"    | "no", why: the caller deletes it itself
const (
	kindRun    = "run"
	kindCreate = "create"
	kindDelete = "delete"
	ownerFound = "caller"
	wordOK     = "ok"
	wordNo     = "no"
	wordSure   = "sure"
	wordMine   = "mine"
	wordOnce   = "once"
	// optionQuiet: the caller has no way to print warnings.
	optionQuiet = "quiet"
	// optionEnv: the program gets variables of its own, which the policy may depend on.
	optionEnv = "env"
	// optionEarly: the caller prepares the program while the pool completes the sandbox and compares, and waits for "sure".
	optionEarly = "early"

	fields     = 7
	maxMessage = 16 << 10 // bytes
	socketName = "socket"
	patience   = 10 * time.Second // for the other end
)

func send(c net.Conn, texts ...string) error {
	message := strings.Join(texts, "\x00") + "\x00"
	if len(message) > maxMessage {
		return errors.New("the message is too long")
	}
	_, err := c.Write([]byte(message))
	return err
}

func receive(c net.Conn) ([]string, error) {
	buf := make([]byte, maxMessage+1)
	n, err := c.Read(buf)
	if err != nil {
		return nil, err
	}
	if n == 0 || n > maxMessage || buf[n-1] != 0 {
		return nil, errors.New("it is no message of a pool's")
	}
	return strings.Split(string(buf[:n-1]), "\x00"), nil
}

// address is the socket in a pool's directory, however long the path to that is.
func address(dir *os.File) *net.UnixAddr {
	return &net.UnixAddr{Net: "unixpacket", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName)}
}
