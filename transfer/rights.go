package transfer

import (
	"errors"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Opener opens files with the rights of a program, and no other: no capability, and the program's ids. A file that the program
// could not read is not handed to somebody who shows it to the program.
type Opener struct {
	as *rights // nil: the caller's rights are the program's
}

// rights are a program's, and those of the caller's thread to go back to.
type rights struct {
	uid, gid int
	caps     [2]unix.CapUserData
	groups   []uint32
}

// NewOpener takes the ids that the program has on the host.
func NewOpener(uid, gid int) (*Opener, error) {
	caps, err := otherRights(uid)
	if err != nil {
		return nil, err
	}
	if caps == nil {
		return &Opener{}, nil
	}
	groups, err := unix.Getgroups()
	if err != nil {
		return nil, err
	}
	as := &rights{uid: uid, gid: gid, caps: *caps}
	for _, g := range groups {
		as.groups = append(as.groups, uint32(g))
	}
	return &Opener{as}, as.lend(func() {})
}

// lend has the calling thread, and no other, do something with the program's rights. Go makes no thread from one that a goroutine has to itself.
// To wake a thread that has the rights already, and to be woken by it, takes longer.
func (r *rights) lend(do func()) error {
	runtime.LockOSThread()
	caps := r.caps
	err := become(r.uid, r.gid, &caps)
	if err == nil {
		do()
	}
	r.takeBack()
	runtime.UnlockOSThread()
	return err
}

// takeBack gives the thread its own rights again. Where that fails, which the kernel has no reason for, nothing may go on.
func (r *rights) takeBack() {
	hdr, caps := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, r.caps
	if err := unix.Capset(&hdr, &caps[0]); err != nil {
		panic("take back capabilities: " + err.Error())
	}
	if r.uid != unix.Geteuid() {
		if !setIDs(unix.Geteuid(), unix.Getegid()) || setGroups(r.groups) != nil && !r.hasGroups() {
			panic("take back ids")
		}
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) // as in become
}

// hasGroups reports whether the thread has its own: a caller that may not change them has never lost them.
func (r *rights) hasGroups() bool {
	is, err := unix.Getgroups()
	return err == nil && slices.EqualFunc(is, r.groups, func(a int, b uint32) bool { return uint32(a) == b })
}

// setIDs changes those that decide about files.
func setIDs(uid, gid int) bool {
	for _, c := range []struct{ call, id uintptr }{{unix.SYS_SETFSGID, uintptr(gid)}, {unix.SYS_SETFSUID, uintptr(uid)}} {
		_, _, _ = unix.RawSyscall(c.call, c.id, 0, 0)
		if is, _, _ := unix.RawSyscall(c.call, ^uintptr(0), 0, 0); is != c.id {
			return false
		}
	}
	return true
}

func setGroups(list []uint32) error {
	first := unsafe.SliceData(append(list, 0)) // where the list is empty, too
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(list)), uintptr(unsafe.Pointer(first)), 0); errno != 0 {
		return errno
	}
	return nil
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
		if err := setGroups(nil); err != nil {
			return err
		}
		if !setIDs(uid, gid) {
			return unix.EPERM
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

func (o *Opener) open(dir int, name string, how *unix.OpenHow) (fd int, err error) {
	if o.as == nil {
		return openat(dir, name, how)
	}
	if lerr := o.as.lend(func() { fd, err = openat(dir, name, how) }); lerr != nil {
		return -1, lerr
	}
	return fd, err
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
