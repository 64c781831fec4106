package chmod

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/transfer"
)

// asked is one call, the kernel's struct seccomp_notif.
type asked struct {
	ID         uint64
	PID, Flags uint32
	Nr         int32
	Arch       uint32
	IP         uint64
	Args       [6]uint64
}

// reply is struct seccomp_notif_resp.
type reply struct {
	ID    uint64
	Val   int64
	Error int32
	Flags uint32
}

const (
	notifyRecv  = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	notifySend  = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
	notifyValid = 0x40082102 // SECCOMP_IOCTL_NOTIF_ID_VALID
)

// Command is the argument with which the binary answers the filter of an exec of the short way (forkexec/listener.c).
const Command = "modes"

// Inherited is the listener that this process has then, as descriptor 3; nil: it has none.
var Inherited = sync.OnceValue(func() *os.File { //nolint:gochecknoglobals // opened once
	const fd = 3
	if name, err := os.Readlink("/proc/self/fd/3"); err != nil || name != "anon_inode:seccomp notify" || unix.SetNonblock(fd, true) != nil {
		return nil
	}
	return os.NewFile(fd, "seccomp")
})

// Answer answers the calls of one exec until nobody is left who could call, or the listener is closed. It closes the listener. Only a
// program that asks costs a thread.
func Answer(listener *os.File) error {
	defer listener.Close()
	raw, err := listener.SyscallConn()
	if err != nil {
		return err
	}
	var a answerer
	wait := 0 // milliseconds
	return raw.Read(func(fd uintptr) bool {
		for {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(p, wait)
			switch {
			case errors.Is(err, unix.EINTR):
			case err != nil, n > 0 && p[0].Revents&unix.POLLIN == 0: // nobody is left
				return true
			case n == 0:
				return false
			default:
				a.one(fd)
				wait = -1 // on its own thread: to let Go's poller wait would take longer than the answer
			}
		}
	})
}

// answerer has the rights of the program as soon as that has asked.
type answerer struct {
	locked bool // it has a thread of its own
	became bool
	mounts int // that have been made
	pace   pace
	beside time.Duration // what took other threads for the call that is being answered
}

// byNumber are the calls by their numbers.
var byNumber = sync.OnceValue(func() map[int32]arguments { //nolint:gochecknoglobals // made once, where something asks at all
	list := map[int32]arguments{}
	for name, where := range calls() {
		if nr, ok := forkexec.CallNumber(name); ok {
			list[int32(nr)] = where
		}
	}
	return list
})

func (s *answerer) one(listener uintptr) {
	var a asked
	if !s.locked {
		runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
		s.locked = true
		s.pace.thread = threadTime() // it may have been another goroutine's
	}
	s.beside = 0
	defer func() { time.Sleep(s.pace.after(threadTime(), s.beside)) }()
	if ioctl(listener, notifyRecv, unsafe.Pointer(&a)) != nil {
		return // it was killed meanwhile
	}
	r := reply{ID: a.ID, Error: -int32(errnoOf(s.answer(listener, &a)))}
	_ = ioctl(listener, notifySend, unsafe.Pointer(&r)) // the same
}

func ioctl(fd uintptr, request uint, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uintptr(request), uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &errno):
		return errno
	}
	return unix.EPERM
}

// answer carries a call out, or says why not.
func (s *answerer) answer(listener uintptr, a *asked) error {
	where, ok := byNumber()[a.Nr]
	if !ok && a.Nr != unix.SYS_MOUNT {
		return unix.EPERM
	}
	proc, err := unix.Open("/proc/"+strconv.Itoa(int(a.PID)), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return unix.EPERM
	}
	defer unix.Close(proc)
	// Now its number cannot have been given to another process.
	valid := func() bool { return ioctl(listener, notifyValid, unsafe.Pointer(&a.ID)) == nil }
	if !valid() {
		return unix.EPERM
	}
	if !ok {
		return s.mount(theirCall{proc: proc}, a, valid)
	}
	if !s.became { // all that ask here have the same ids, because a program cannot change its own
		uid, gid, err := owner(proc)
		if err == nil {
			err = transfer.Become(uid, gid)
		}
		if err != nil {
			return unix.EPERM
		}
		s.became = true
	}
	argument := func(i, none int) int {
		if i < 0 {
			return none
		}
		return int(int32(a.Args[i]))
	}
	c := theirCall{proc: proc, mode: uint32(a.Args[where.mode])}
	if where.path < 0 {
		return c.setByDescriptor(argument(where.dir, -1))
	}
	name, err := c.text(a.Args[where.path])
	if err != nil {
		return err
	}
	return c.set(argument(where.dir, unix.AT_FDCWD), name, argument(where.flags, 0))
}

// mount makes a mount on a thread that has not become the program.
func (s *answerer) mount(c theirCall, a *asked, valid func() bool) error {
	if s.mounts == maxMounts {
		return unix.ENOSPC
	}
	began, done := time.Now(), make(chan unix.Errno)
	go func() { done <- c.mount(a, valid) }()
	errno := <-done
	s.beside = time.Since(began)
	if errno != 0 {
		return errno
	}
	s.mounts++
	return nil
}

func status(proc int) (map[string]string, error) {
	fd, err := unix.Openat(proc, "status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil, err
	}
	return procfs.StatusFields(string(buf[:n])), nil
}

// owner is as whom a process makes its file system calls, in our own numbers.
func owner(proc int) (uid, gid int, err error) {
	fields, err := status(proc)
	if err != nil {
		return 0, 0, err
	}
	var ids [2]int
	for i, name := range []string{"Uid", "Gid"} {
		f := strings.Fields(fields[name])
		if len(f) != 4 {
			return 0, 0, unix.EPERM
		}
		id, err := strconv.ParseUint(f[3], 10, 31)
		if err != nil {
			return 0, 0, err
		}
		ids[i] = int(id)
	}
	return ids[0], ids[1], nil
}
