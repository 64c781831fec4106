package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/relay/pipe"
)

// forward is a port inside that stands for one target outside.
type forward struct {
	Listener
	socket string // of a "unix:" target: its path
}

// newForward follows no symlink: the launcher has resolved them, and has refused those that a program could have made.
func newForward(l Listener) forward {
	name, ok := strings.CutPrefix(l.Target, "unix:")
	if !ok {
		return forward{Listener: l}
	}
	return forward{l, cmp.Or(l.Socket, name)}
}

func (s *server) forward(ctx context.Context, f forward, in *net.TCPConn) {
	ev := Event{Time: time.Now(), Kind: "forward", Host: f.Target, Port: f.Port, Rule: fmt.Sprintf("%d=%s", f.Port, f.Target)}
	out, err := s.dialTarget(ctx, f)
	if err != nil {
		pipe.Reset(in)
		if errno := syscall.Errno(0); errors.As(err, &errno) {
			err = errno // the rest of the message would only repeat the target
		}
		s.events.end(ev, Failed, fmt.Sprintf("connect %s: %v", f.Target, err))
		return
	}
	ev.Up, ev.Down, err = pipe.Join(ctx, in, out, nil, nil)
	s.events.endWith(ev, err)
}

func (s *server) dialTarget(ctx context.Context, f forward) (pipe.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, s.lim.Dial)
	defer cancel()
	if f.socket == "" {
		return s.dialHost(ctx, f.Target)
	}
	fd, err := openSocketFile(f.socket)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return s.dial(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
}

// dialHost connects to a forward's host. 127.0.0.1 stands for ::1 too: many servers that listen
// on "localhost" listen on one of the two (Node from 17 on: on ::1), and the policy's author thinks of a port.
func (s *server) dialHost(ctx context.Context, target string) (pipe.Stream, error) {
	c, err := s.dial(ctx, "tcp", target)
	port, is4 := strings.CutPrefix(target, "127.0.0.1:")
	if !is4 || !errors.Is(err, syscall.ECONNREFUSED) {
		return c, err
	}
	if c6, err := s.dial(ctx, "tcp", "[::1]:"+port); err == nil {
		return c6, nil
	}
	return nil, err
}

// openSocketFile follows no link to a socket. Where it lies in a directory that the program can write, the program could
// otherwise have the relay connect to any socket of the host's, Docker's for one, by a link of the right name.
func openSocketFile(path string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
		again := errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) // EAGAIN: something on the way was being renamed
		if err == nil || !again || tries == 100 {
			return fd, os.NewSyscallError("openat2", err)
		}
	}
}
