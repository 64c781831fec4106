package warm

import (
	_ "embed" // the interpreter's side
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
)

//go:embed boot.py
var bootPy string

//go:embed stub.py
var stubPy string

// What is said: each is a length of 8 bytes, little-endian, and so many bytes, less the last, which is that byte alone.
//
//	boot.py            -> the interpreter, before it starts and without a length
//	"ready" \0 PATH...  <- it waits. The paths are all that it has read, or would have if it were there
//	the request         -> the working directory, how many variables, them, the command line, by \0; with the descriptors 0, 1, 2 and, if there is
//	                       one, 3. It takes over all of that, and compiles the program
//	"mine"              <- it could
//	"!"                 -> the exec has begun: it closes the socket, runs site and the program
//	"no" \0 WHY         <- instead of "ready" or "mine": it ends
const (
	readyWithin = 10 * time.Second
	mineWithin  = 5 * time.Second
	maxHello    = 1 << 20
)

// channel is our end.
type channel struct{ *net.UnixConn }

// close ends the connection; nothing that was written is lost by it.
func (c channel) close() { _ = c.Close() }

// newChannel makes the socket, with what the interpreter reads first in it.
func newChannel() (ours channel, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return channel{}, nil, fmt.Errorf("socketpair: %w", err)
	}
	f := os.NewFile(uintptr(fds[0]), "warm")
	defer f.Close()
	theirs = os.NewFile(uintptr(fds[1]), "interpreter")
	conn, err := net.FileConn(f)
	if err == nil {
		if _, err = conn.Write([]byte(bootPy)); err == nil {
			return channel{conn.(*net.UnixConn)}, theirs, nil
		}
		_ = conn.Close()
	}
	theirs.Close()
	return channel{}, nil, err
}

// hear reads what the interpreter says, which must begin with a word.
func (c channel) hear(word string, within time.Duration) ([]string, error) {
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	var size [8]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(size[:])
	if n > maxHello {
		return nil, errors.New("it says too much")
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(c, data); err != nil {
		return nil, err
	}
	said := strings.Split(string(data), "\x00")
	switch {
	case said[0] == word:
		return said[1:], nil
	case said[0] == "no" && len(said) == 2:
		return nil, errors.New(said[1])
	}
	return nil, errors.New("it says what nobody understands")
}

// ask sends a request.
func (c channel) ask(cmd *forkexec.Command) error {
	parts := append([]string{cmd.Dir, strconv.Itoa(len(cmd.Env))}, cmd.Env...)
	parts = append(parts, cmd.Args...)
	if slices.ContainsFunc(parts, func(s string) bool { return strings.Contains(s, "\x00") }) {
		return errors.New("a text has a zero byte in it")
	}
	text := strings.Join(parts, "\x00")
	data := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	fds := make([]int, 0, 4)
	for _, f := range append(cmd.Stdio[:], cmd.Result) {
		if f != nil {
			fds = append(fds, int(f.Fd()))
		}
	}
	if err := c.SetWriteDeadline(time.Now().Add(mineWithin)); err != nil {
		return err
	}
	n, _, err := c.WriteMsgUnix(data, unix.UnixRights(fds...), nil)
	if err == nil && n < len(data) {
		_, err = c.Write(data[n:])
	}
	return err
}

// begin lets the program run. Where nobody hears it the exec has ended, and its result says how.
func (c channel) begin() { _, _ = c.Write([]byte("!")) }
