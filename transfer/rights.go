package transfer

import (
	"errors"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Opener opens files with the rights of a program, and no other: no capability, and the program's ids. A file that the program
// could not read is not handed to somebody who shows it to the program.
type Opener struct {
	requests chan openRequest // nil: the caller's rights are the program's
	closed   chan struct{}
}

type openRequest struct {
	dir    int
	name   string
	how    *unix.OpenHow
	answer chan opened
}

type opened struct {
	fd  int
	err error
}

// NewOpener takes the ids that the program has on the host. It takes a thread for itself where these are not the caller's.
func NewOpener(uid, gid int) (*Opener, error) {
	caps, err := otherRights(uid)
	if err != nil {
		return nil, err
	}
	if caps == nil {
		return &Opener{}, nil
	}
	o := &Opener{requests: make(chan openRequest), closed: make(chan struct{})}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine: no other may have these ids
		err := become(uid, gid, caps)
		ready <- err
		if err != nil {
			return
		}
		for {
			select {
			case r := <-o.requests:
				fd, err := openat(r.dir, r.name, r.how)
				r.answer <- opened{fd, err}
			case <-o.closed:
				return
			}
		}
	}()
	if err := <-ready; err != nil {
		return nil, err
	}
	return o, nil
}

// Become gives the calling thread, and no other, the rights of a program with these ids on the host. The goroutine must be locked to the
// thread, and must end without unlocking it.
func Become(uid, gid int) error {
	caps, err := otherRights(uid)
	if err != nil || caps == nil {
		return err
	}
	return become(uid, gid, caps)
}

// otherRights gives the caller's capabilities if it has other rights than a program with that id; else nil.
func otherRights(uid int) (*[2]unix.CapUserData, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&hdr, &caps[0]); err != nil {
		return nil, err
	}
	if uid == unix.Geteuid() && caps[0].Effective|caps[1].Effective == 0 {
		return nil, nil
	}
	return &caps, nil
}

// become changes this thread alone, so the raw calls: those of the library tell all threads. The real and effective ids stay, so
// a program cannot signal or trace the launcher. A process that changes its ids cannot be dumped, and the kernel gives its
// files in /proc to root, which starts of programs by other threads would meet.
func become(uid, gid int, caps *[2]unix.CapUserData) error {
	if uid != unix.Geteuid() {
		var none [1]uint32
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, uintptr(unsafe.Pointer(&none[0])), 0); errno != 0 {
			return errno
		}
		for _, c := range []struct{ call, id uintptr }{{unix.SYS_SETFSGID, uintptr(gid)}, {unix.SYS_SETFSUID, uintptr(uid)}} {
			_, _, _ = unix.RawSyscall(c.call, c.id, 0, 0)
			if is, _, _ := unix.RawSyscall(c.call, ^uintptr(0), 0, 0); is != c.id {
				return unix.EPERM
			}
		}
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	for i := range caps {
		caps[i].Effective = 0
	}
	if err := unix.Capset(&hdr, &caps[0]); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
}

// Close ends it. It is called once.
func (o *Opener) Close() {
	if o.requests != nil {
		close(o.closed)
	}
}

func (o *Opener) open(dir int, name string, how *unix.OpenHow) (int, error) {
	if o.requests == nil {
		return openat(dir, name, how)
	}
	answer := make(chan opened, 1)
	select {
	case o.requests <- openRequest{dir, name, how, answer}:
		a := <-answer
		return a.fd, a.err
	case <-o.closed:
		return -1, unix.EBADF
	}
}

const maxRaces = 100 // how often a path is looked up again because of a rename

func openat(dir int, name string, how *unix.OpenHow) (int, error) {
	for try := 0; ; try++ {
		fd, err := unix.Openat2(dir, name, how)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) && try < maxRaces {
			continue
		}
		return fd, err
	}
}

// Dir opens a directory of a view, whose root is open: the working directory of a program. Links may lead to it.
func (o *Opener) Dir(root int, name string) (int, error) {
	return o.open(root, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

const onlyRead = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC

// beneath opens what a path names below a directory. Links that stay below are followed.
func (o *Opener) beneath(dir int, name string, flags uint64) (int, error) {
	return o.open(dir, name, &unix.OpenHow{
		Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// entry opens an entry of a directory itself, whatever it is.
func (o *Opener) entry(dir int, name string, flags uint64) (int, error) {
	return o.open(dir, name, &unix.OpenHow{
		Flags:   flags | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS,
	})
}
