package setgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// askErrno marks, while the filter is compiled, what is to be asked.
const askErrno = 4095

// setGroupCalls are the calls that are asked, with the positions of their arguments: descriptor of a directory, path, mode, flags; -1
// where a call has none.
func setGroupCalls() map[string][4]int {
	return map[string][4]int{
		"chmod": {-1, 0, 1, -1}, "fchmod": {0, -1, 1, -1}, "fchmodat": {0, 1, 2, -1}, "fchmodat2": {0, 1, 2, 3},
	}
}

// Filter is a profile's filter that asks for modes with the set-group-id bit and without that of set-user-id.
func Filter(profile *specs.LinuxSeccomp, arch string) ([]unix.SockFilter, error) {
	asking := *profile
	asking.Syscalls = nil
	calls := setGroupCalls()
	for _, r := range profile.Syscalls {
		var rest []string
		for _, name := range r.Names {
			if _, ok := calls[name]; !ok || !refusesSetGroup(r) {
				rest = append(rest, name)
				continue
			}
			ask, mark := r, uint(askErrno)
			ask.Names, ask.ErrnoRet = []string{name}, &mark
			asking.Syscalls = append(asking.Syscalls, ask)
		}
		if r.Names = rest; len(rest) > 0 {
			asking.Syscalls = append(asking.Syscalls, r)
		}
	}
	filter, err := forkexec.CompileSeccomp(&asking, arch)
	if err != nil {
		return nil, err
	}
	const marked, retK = uint32(unix.SECCOMP_RET_ERRNO | askErrno), unix.BPF_RET | unix.BPF_K
	for i := range filter {
		if filter[i].Code == retK && filter[i].K == marked {
			filter[i].K = unix.SECCOMP_RET_USER_NOTIF
		}
	}
	return filter, nil
}

// refusesSetGroup says whether a rule refuses exactly modes with that bit: spec/seccomp has it.
func refusesSetGroup(r specs.LinuxSyscall) bool {
	return r.Action == specs.ActErrno && len(r.Args) == 1 && r.Args[0].Op == specs.OpMaskedEqual &&
		r.Args[0].Value == unix.S_ISUID|unix.S_ISGID && r.Args[0].ValueTwo == unix.S_ISGID
}

// asked is one call of a program: the kernel's struct seccomp_notif.
type asked struct {
	ID         uint64
	PID, Flags uint32
	Nr         int32
	Arch       uint32
	IP         uint64
	Args       [6]uint64
}

// notifyAnswer is struct seccomp_notif_resp.
type notifyAnswer struct {
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

// modeSetter answers the calls of one exec.
type modeSetter struct {
	listener *os.File
	calls    map[int32][4]int
}

// serve answers until nobody is left who could call, or done is closed.
func (s *modeSetter) serve(done <-chan struct{}) {
	defer s.listener.Close()
	fd := s.listener.Fd()
	for {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 500)
		select {
		case <-done:
			return
		default:
		}
		if err != nil && !errors.Is(err, unix.EINTR) || n > 0 && p[0].Revents&unix.POLLIN == 0 {
			return
		}
		if n <= 0 {
			continue
		}
		var a asked
		if ioctlPointer(fd, notifyRecv, unsafe.Pointer(&a)) != nil {
			continue // it was killed meanwhile
		}
		r := notifyAnswer{ID: a.ID, Error: -int32(s.answer(&a))}
		_ = ioctlPointer(fd, notifySend, unsafe.Pointer(&r))
	}
}

func ioctlPointer(fd uintptr, request uint, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uintptr(request), uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// answer carries a call out, or says why not.
func (s *modeSetter) answer(a *asked) unix.Errno {
	where, ok := s.calls[a.Nr]
	if !ok {
		return unix.EPERM
	}
	proc, err := unix.Open("/proc/"+strconv.Itoa(int(a.PID)), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return unix.EPERM
	}
	defer unix.Close(proc)
	// Now its number cannot have been given to another process.
	if ioctlPointer(s.listener.Fd(), notifyValid, unsafe.Pointer(&a.ID)) != nil {
		return unix.EPERM
	}
	c := theirCall{proc: proc, mode: uint32(a.Args[where[2]])}
	var path string
	dirfd := unix.AT_FDCWD
	if where[0] >= 0 {
		dirfd = int(int32(a.Args[where[0]]))
	}
	flags := 0
	if where[3] >= 0 {
		flags = int(int32(a.Args[where[3]]))
	}
	if where[1] >= 0 {
		if path, err = c.text(a.Args[where[1]]); err != nil {
			return errnoOf(err)
		}
	}
	return errnoOf(c.setMode(dirfd, path, flags, where[1] < 0))
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

// theirCall is a call of a process that waits for its answer. What it names is resolved in its own view: its root, its mounts.
type theirCall struct {
	proc int // its directory in /proc
	mode uint32
}

// text reads a path out of its memory.
func (c theirCall) text(at uint64) (string, error) {
	fd, err := unix.Openat(c.proc, "mem", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", unix.EPERM
	}
	defer unix.Close(fd)
	buf := make([]byte, unix.PathMax)
	n, err := unix.Pread(fd, buf, int64(at))
	if err != nil || n <= 0 {
		return "", unix.EFAULT
	}
	if end := slices.Index(buf[:n], 0); end >= 0 {
		return string(buf[:end]), nil
	}
	return "", unix.ENAMETOOLONG
}

// setMode is the call itself.
func (c theirCall) setMode(dirfd int, name string, flags int, byFD bool) error {
	var fd int
	var err error
	switch {
	case byFD:
		fd, err = unix.Openat(c.proc, fmt.Sprintf("fd/%d", dirfd), unix.O_PATH|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			err = unix.EBADF
		}
	case name == "":
		return unix.ENOENT // with AT_EMPTY_PATH too, which fchmod does better
	case flags&^unix.AT_SYMLINK_NOFOLLOW != 0:
		return unix.EINVAL
	default:
		fd, err = c.open(dirfd, name, flags&unix.AT_SYMLINK_NOFOLLOW != 0)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return c.apply(fd)
}

// open finds a path below its root, without magic links.
func (c theirCall) open(dirfd int, name string, nofollow bool) (int, error) {
	root, err := unix.Openat(c.proc, "root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, unix.EPERM
	}
	defer unix.Close(root)
	if !path.IsAbs(name) {
		base, err := c.base(root, dirfd)
		if err != nil {
			return -1, err
		}
		name = base + "/" + name // not cleaned: ".." after a link leads elsewhere
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	if nofollow {
		how.Flags |= unix.O_NOFOLLOW
	}
	return unix.Openat2(root, name, &how)
}

// base is the path, below its root, of the directory that a relative path begins at.
func (c theirCall) base(root, dirfd int) (string, error) {
	link := "cwd"
	if dirfd != unix.AT_FDCWD {
		link = fmt.Sprintf("fd/%d", dirfd)
	}
	var is, there unix.Stat_t
	if err := unix.Fstatat(c.proc, link, &is, 0); err != nil {
		return "", unix.EBADF
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(c.proc, link, buf)
	if err != nil || n == len(buf) {
		return "", unix.ENAMETOOLONG
	}
	base := string(buf[:n])
	fd, err := unix.Openat2(root, base, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &there); err != nil || there.Dev != is.Dev || there.Ino != is.Ino {
		return "", unix.EPERM // it was moved or covered: no path leads there
	}
	return base, nil
}

// apply gives a directory its mode as the kernel would at its owner's request: a launcher with privileges must not do more.
func (c theirCall) apply(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	uid, gid, err := c.owner()
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || c.mode&unix.S_ISUID != 0 || st.Uid != uid {
		return unix.EPERM
	}
	mode := c.mode & 0o7777
	if os.Geteuid() == 0 && st.Gid != gid {
		mode &^= unix.S_ISGID // who is not in the group cannot set it; for others the kernel sees to that
	}
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
}

// owner is as whom its file system calls are made, in our own numbers.
func (c theirCall) owner() (uid, gid uint32, err error) {
	fd, err := unix.Openat(c.proc, "status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return 0, 0, err
	}
	fields := procfs.StatusFields(string(buf[:n]))
	var ids [2]uint64
	for i, name := range []string{"Uid", "Gid"} {
		f := strings.Fields(fields[name])
		if len(f) != 4 {
			return 0, 0, unix.EPERM
		}
		if ids[i], err = strconv.ParseUint(f[3], 10, 32); err != nil {
			return 0, 0, err
		}
	}
	return uint32(ids[0]), uint32(ids[1]), nil
}

// Start has the filter of a program ask us. got is called when the program has been started.
func Start(cmd *forkexec.Command) (got func(done <-chan struct{}) error, closeAll func(), err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("start program: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "listener"), os.NewFile(uintptr(pair[1]), "listener")
	cmd.Listener = theirs
	return func(done <-chan struct{}) error {
			theirs.Close()
			oob := make([]byte, unix.CmsgSpace(4))
			_, n, _, _, err := unix.Recvmsg(int(ours.Fd()), make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
			if err != nil {
				return err
			}
			messages, err := unix.ParseSocketControlMessage(oob[:n])
			if err != nil || len(messages) != 1 {
				return errors.Join(err, unix.EPROTO)
			}
			fds, err := unix.ParseUnixRights(&messages[0])
			if err != nil || len(fds) != 1 {
				return errors.Join(err, unix.EPROTO)
			}
			s := &modeSetter{listener: os.NewFile(uintptr(fds[0]), "seccomp"), calls: map[int32][4]int{}}
			for name, where := range setGroupCalls() {
				if nr, ok := forkexec.CallNumber(name); ok {
					s.calls[int32(nr)] = where
				}
			}
			go s.serve(done)
			return nil
		}, func() {
			ours.Close()
			theirs.Close()
		}, nil
}
