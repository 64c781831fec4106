package relayproc

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
)

// confineRelay leaves this process, in all its threads, no system call but those that a relay makes. Whoever takes it over
// through what programs inside or servers outside send it finds no way to execute anything, to start a process, to
// look at another or to change a file's owner or mode. Files it can open: the resolver's, sockets to forward to, events.
func confineRelay() error {
	filter, err := forkexec.CompileSeccomp(relayFilter(), runtime.GOARCH)
	if err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("load the relay's system call filter: %w", errno)
	}
	return nil
}

// relayFilter is the profile. Everything else answers EPERM; clone3 ENOSYS, so that the C library makes threads by clone.
func relayFilter() *specs.LinuxSeccomp {
	allow := func(names ...string) specs.LinuxSyscall {
		return specs.LinuxSyscall{Names: names, Action: specs.ActAllow}
	}
	denied, unknown := uint(unix.EPERM), uint(unix.ENOSYS)
	p := &specs.LinuxSeccomp{
		DefaultAction: specs.ActErrno, DefaultErrnoRet: &denied, Architectures: []specs.Arch{specs.ArchX86_64},
		Syscalls: []specs.LinuxSyscall{
			allow( // the Go runtime's
				"brk", "clock_gettime", "clock_nanosleep", "close", "epoll_create1", "epoll_ctl", "epoll_pwait", "eventfd2", "exit",
				"exit_group", "futex", "getpid", "getrandom", "gettid", "madvise", "membarrier", "mincore", "mmap", "mprotect", "munmap",
				"nanosleep", "pipe2", "ppoll", "prlimit64", "read", "restart_syscall", "rseq", "rt_sigaction", "rt_sigprocmask",
				"rt_sigreturn", "sched_getaffinity", "sched_yield", "set_robust_list", "sigaltstack", "tgkill", "uname", "write"),
			allow( // connections
				"accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen", "recvfrom", "recvmsg", "sendmsg",
				"sendto", "setsockopt", "shutdown", "splice", "readv", "writev"),
			allow( // the resolver's files, links to a forward's socket, events, the record
				"fallocate", "fcntl", "fdatasync", "flock", "fstatfs", "ftruncate", "fstat", "lseek", "newfstatat", "openat", "openat2", "pread64", "pwrite64", "readlinkat", "renameat",
				"statx"),
			{Names: []string{"clone3"}, Action: specs.ActErrno, ErrnoRet: &unknown},
			{Names: []string{"clone"}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{
				{Value: unix.CLONE_THREAD | unix.CLONE_NEWUSER, ValueTwo: unix.CLONE_THREAD, Op: specs.OpMaskedEqual},
			}},
		},
	}
	if runtime.GOARCH == "amd64" {
		p.Syscalls = append(p.Syscalls, allow("arch_prctl", "epoll_wait", "poll"))
	} else {
		p.Architectures = []specs.Arch{specs.ArchAARCH64}
	}
	for _, family := range []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK} {
		p.Syscalls = append(p.Syscalls, specs.LinuxSyscall{Names: []string{"socket"}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{
			{Value: family, Op: specs.OpEqualTo},
		}})
	}
	return p
}
