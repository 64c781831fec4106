package check

import (
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/hooks"
)

// rawCall makes a call whose arguments are a descriptor and a struct sockaddr.
func rawCall(number uintptr, fd int, address []byte) error {
	_, _, e := unix.Syscall(number, uintptr(fd), uintptr(unsafe.Pointer(&address[0])), uintptr(len(address)))
	if e != 0 {
		return e
	}
	return nil
}

// refused is a call that the filter refuses, with arguments that do no harm without it and get another answer then.
type refused struct {
	name   string
	want   unix.Errno
	number uintptr
	args   []any
}

const (
	allOnes = -1
	nowhere = 0 // a null pointer
)

// refusedCalls are some of each kind that spec.Seccomp refuses. Those that take a capability to get any further are not
// among them: without the filter the kernel gives this process the same answer.
func refusedCalls(s *hooks.Subject) []refused {
	const tiocsti = 0x5412
	list := []refused{
		{"unshare", unix.EPERM, unix.SYS_UNSHARE, []any{0}},
		{"setns", unix.EPERM, unix.SYS_SETNS, []any{-1, 0}},
		{"clone of a user namespace", unix.EPERM, unix.SYS_CLONE, []any{unix.CLONE_NEWUSER | unix.CLONE_FS, 0, 0, 0, 0}},
		{"clone3", unix.ENOSYS, unix.SYS_CLONE3, []any{nowhere, 0}},
		{"mount", unix.EPERM, unix.SYS_MOUNT, []any{nowhere, nowhere, nowhere, 0, nowhere}},
		{"umount2", unix.EPERM, unix.SYS_UMOUNT2, []any{nowhere, allOnes}},
		{"open_tree", unix.EPERM, unix.SYS_OPEN_TREE, []any{-1, nowhere, allOnes}},
		{"mount_setattr", unix.EPERM, unix.SYS_MOUNT_SETATTR, []any{-1, nowhere, allOnes, nowhere, 0}},
		{"chroot", unix.EPERM, unix.SYS_CHROOT, []any{nowhere}},
		{"openat2", unix.ENOSYS, unix.SYS_OPENAT2, []any{-1, nowhere, nowhere, 0}},
		{"io_uring_setup", unix.EPERM, unix.SYS_IO_URING_SETUP, []any{0, nowhere}},
		{"userfaultfd", unix.EPERM, unix.SYS_USERFAULTFD, []any{allOnes}},
		{"bpf", unix.EPERM, unix.SYS_BPF, []any{allOnes, nowhere, 0}},
		{"perf_event_open", unix.EPERM, unix.SYS_PERF_EVENT_OPEN, []any{nowhere, 0, -1, -1, allOnes}},
		{"keyctl", unix.EPERM, unix.SYS_KEYCTL, []any{unix.KEYCTL_GET_KEYRING_ID, unix.KEY_SPEC_SESSION_KEYRING, 0}},
		{"add_key", unix.EPERM, unix.SYS_ADD_KEY, []any{nowhere, nowhere, nowhere, 0, 0}},
		{"request_key", unix.EPERM, unix.SYS_REQUEST_KEY, []any{nowhere, nowhere, nowhere, 0}},
		{"kcmp", unix.EPERM, unix.SYS_KCMP, []any{allOnes, allOnes, 0, 0, 0}},
		{"pidfd_getfd", unix.EPERM, unix.SYS_PIDFD_GETFD, []any{-1, 0, 0}},
		{"process_madvise", unix.EPERM, unix.SYS_PROCESS_MADVISE, []any{-1, nowhere, 0, 0, 0}},
		{"ioctl TIOCSTI", unix.EPERM, unix.SYS_IOCTL, []any{-1, tiocsti, nowhere}},
		{"fchmod to a setuid mode", unix.ENOSYS, unix.SYS_FCHMOD, []any{-1, unix.S_ISUID | 0o755}},
		{"lease of a file", unix.EINVAL, unix.SYS_FCNTL, []any{-1, unix.F_SETLEASE, 0}},
		{"watch for what is opened", unix.ENOSPC, unix.SYS_INOTIFY_ADD_WATCH, []any{-1, nowhere, unix.IN_OPEN}},
		// A type that does not exist is looked at before the family, so that no module is loaded.
		{"socket of AF_PACKET", unix.EAFNOSUPPORT, unix.SYS_SOCKET, []any{unix.AF_PACKET, 0x7fffff00, 0}},
	}
	if s.Userns {
		list = withUserns(list)
	}
	if s.NoProc {
		list = append(list, refused{"listmount", unix.ENOSYS, unix.SYS_LISTMOUNT, []any{nowhere, nowhere, 0, 0}},
			refused{"statmount", unix.ENOSYS, unix.SYS_STATMOUNT, []any{nowhere, nowhere, 0, 0}})
	}
	if s.Affinity {
		list = append(list, refused{"sched_setaffinity", unix.EPERM, unix.SYS_SCHED_SETAFFINITY, []any{0, 0, nowhere}})
	}
	if s.Unlisted != "" && !s.NoSpawn && checksExecution() {
		list = append(list, refused{"execution of " + s.Unlisted, unix.EACCES, unix.SYS_EXECVEAT, []any{unix.AT_FDCWD, s.Unlisted, nowhere, nowhere, atExecveCheck, 0}})
	}
	if s.NoSpawn {
		list = append(list,
			refused{"clone of a process", unix.EPERM, unix.SYS_CLONE, []any{unix.CLONE_SIGHAND, 0, 0, 0, 0}}, // the kernel wants CLONE_VM too
			refused{"execve", unix.EPERM, unix.SYS_EXECVE, []any{nowhere, nowhere, nowhere, 0, 0, 0}},
			refused{"execveat", unix.EPERM, unix.SYS_EXECVEAT, []any{-1, nowhere, nowhere, nowhere, 0, 0}})
	}
	return list
}

// withUserns are those where a program may make user namespaces.
func withUserns(list []refused) []refused {
	allowed := []string{"unshare", "clone of a user namespace", "mount", "umount2", "open_tree", "mount_setattr", "chroot"}
	list = slices.DeleteFunc(list, func(r refused) bool { return slices.Contains(allowed, r.name) })
	return append(list, []refused{
		{"unshare of a time namespace", unix.EPERM, unix.SYS_UNSHARE, []any{unix.CLONE_NEWTIME | 1}}, // 1 is no flag
		{"mount of a new file system", unix.ENOSYS, unix.SYS_MOUNT, []any{nowhere, nowhere, nowhere, 0, nowhere}},
		{"open_tree", unix.ENOSYS, unix.SYS_OPEN_TREE, []any{-1, nowhere, allOnes}},
		{"mount_setattr", unix.ENOSYS, unix.SYS_MOUNT_SETATTR, []any{-1, nowhere, allOnes, nowhere, 0}},
		{"extended attributes", unix.EOPNOTSUPP, unix.SYS_FSETXATTR, []any{-1, nowhere, nowhere, 0, 0}},
		{"another scheduler for process 1", unix.EPERM, unix.SYS_SCHED_SETPARAM, []any{1, nowhere}},
		{"table of a packet filter", unix.ENOPROTOOPT, unix.SYS_SETSOCKOPT, []any{-1, unix.SOL_IP, 64, nowhere, 0}}, // IPT_SO_SET_REPLACE
	}...)
}

const atExecveCheck = 0x10000 // AT_EXECVE_CHECK: says whether a file could be executed, and executes nothing; since Linux 6.14

// checksExecution reports whether the kernel knows that flag. An older one refuses every flag that it does not know.
func checksExecution() bool {
	self, err := unix.BytePtrFromString("/proc/self/exe")
	if err != nil {
		return false
	}
	list := [2]*byte{self}
	at := unix.AT_FDCWD
	_, _, errno := unix.Syscall6(unix.SYS_EXECVEAT, uintptr(at), uintptr(unsafe.Pointer(self)), uintptr(unsafe.Pointer(&list)),
		uintptr(unsafe.Pointer(&list[1])), atExecveCheck, 0)
	return errno == 0
}

// add has the call made with and without the filter.
func (r *refused) add(calls *forkexec.Calls) [2]int {
	return [2]int{
		calls.Add(forkexec.Unfiltered, r.number, r.args...),
		calls.Add(forkexec.InPlace, r.number, r.args...),
	}
}
