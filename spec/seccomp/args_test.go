package seccomp

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// A new RLIMIT_CORE is answered with success and not made; so is the advice to drop pages.
func TestSeccompPretends(t *testing.T) {
	const high = 1 << 32
	for _, arch := range []string{"amd64", "arm64"} {
		for _, c := range []seccompCall{
			{"setrlimit", []uint64{unix.RLIMIT_CORE, 1}, 0},
			{"setrlimit", []uint64{unix.RLIMIT_CORE | high, 1}, 0},
			{"prlimit64", []uint64{0, unix.RLIMIT_CORE, 1, 0}, 0},
			{"prlimit64", []uint64{77, unix.RLIMIT_CORE | high, 1 << 40, 0}, 0},
			{"fadvise64", []uint64{3, 0, 0, 4 | high}, 0},
		} {
			if action, errno := seccompActs(t, Profile(arch, 6, 1), c.name, c.args...); action != specs.ActErrno || errno != 0 {
				t.Errorf("%s: %s %#x: %s %d, want success without the call", arch, c.name, c.args, action, errno)
			}
		}
	}
}

// argumentCalls are calls that are decided by their arguments: what programs need of them, and what they may not do.
func argumentCalls() []seccompCall {
	const high = 1 << 32
	calls := []seccompCall{
		{"fcntl", []uint64{3, unix.F_SETLEASE, unix.F_WRLCK}, unix.EINVAL},
		{"fcntl", []uint64{3, unix.F_SETLEASE | high, unix.F_RDLCK}, unix.EINVAL},
		{"fcntl", []uint64{3, unix.F_SETLEASE | 0xffffffff00000000}, unix.EINVAL},
		{"fcntl", []uint64{3, unix.F_NOTIFY, 1}, unix.EINVAL},
		{"fcntl", []uint64{3, unix.F_SET_FILE_RW_HINT}, unix.EINVAL},
		{"fcntl", []uint64{3, 1040}, unix.EINVAL}, // F_SETDELEG of Linux 6.19
		{"fcntl", []uint64{3, unix.F_OFD_SETLKW}, 0},
		{"fcntl", []uint64{3, unix.F_DUPFD_CLOEXEC}, 0},
		{"fcntl", []uint64{3, unix.F_ADD_SEALS}, 0},
		{"fcntl", []uint64{3, 1 << 31}, unix.EINVAL},
		{"fcntl", []uint64{3, unix.F_SETFL, unix.O_NONBLOCK}, 0},
		{"inotify_add_watch", []uint64{3, 0, unix.IN_MODIFY | unix.IN_CREATE | unix.IN_CLOSE_WRITE | unix.IN_ONLYDIR}, 0},
		{"inotify_add_watch", []uint64{3, 0, unix.IN_ALL_EVENTS}, unix.ENOSPC},
		{"inotify_add_watch", []uint64{3, 0, unix.IN_ACCESS | high}, unix.ENOSPC},
		{"inotify_add_watch", []uint64{3, 0, unix.IN_OPEN}, unix.ENOSPC},
		{"inotify_add_watch", []uint64{3, 0, unix.IN_CLOSE}, unix.ENOSPC},
		{"fadvise64", []uint64{3, 0, 0, 2}, 0},
		{"preadv2", []uint64{3, 0, 0, 0, 0, unix.RWF_NOWAIT | unix.RWF_HIPRI}, unix.EOPNOTSUPP},
		{"preadv2", []uint64{3, 0, 0, 0, 0, unix.RWF_HIPRI}, 0},
		{"cachestat", nil, unix.ENOSYS},
		{"io_setup", []uint64{1}, unix.ENOSYS},
		{"syncfs", []uint64{3}, unix.ENOSYS},
		{"fsync", []uint64{3}, 0},
		{"mmap", []uint64{0, 1 << 21, 3, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_HUGETLB}, unix.ENOMEM},
		{"mmap", []uint64{0, 1 << 21, 3, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS}, 0},
		{"memfd_create", []uint64{0, unix.MFD_HUGETLB | unix.MFD_CLOEXEC}, unix.EINVAL},
		{"memfd_create", []uint64{0, 0xffffffff}, unix.EINVAL},
		{"memfd_create", []uint64{0, unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING}, 0},
		{"shmget", []uint64{0, 1 << 21, 0o4000 | 0o600}, unix.ENOMEM},
		{"shmget", []uint64{0, 1 << 21, 0o1600}, 0},
		{"setsockopt", []uint64{3, unix.IPPROTO_TCP, unix.TCP_ULP}, unix.ENOPROTOOPT},
		{"setsockopt", []uint64{3, unix.IPPROTO_TCP | high, unix.TCP_ULP | high}, unix.ENOPROTOOPT},
		{"setsockopt", []uint64{3, unix.SOL_SOCKET, unix.TCP_ULP}, 0},
		{"setsockopt", []uint64{3, unix.IPPROTO_TCP, unix.TCP_NODELAY}, 0},
		{"prlimit64", []uint64{0, unix.RLIMIT_CORE, 1, 1}, unix.EPERM},
		{"prlimit64", []uint64{0, unix.RLIMIT_CORE | high, 1, 1}, unix.EPERM},
		{"prlimit64", []uint64{0, unix.RLIMIT_CORE, 0, 1}, 0},
		{"prlimit64", []uint64{0, unix.RLIMIT_NOFILE, 1, 0}, 0},
		{"prlimit64", []uint64{7, unix.RLIMIT_NOFILE, 1, 1}, 0},
		{"prlimit64", []uint64{1, unix.RLIMIT_NOFILE, 0, 1}, 0},
		{"prlimit64", []uint64{1, unix.RLIMIT_NOFILE, 1, 0}, unix.EPERM},
		{"prlimit64", []uint64{1 | high, unix.RLIMIT_CPU, 1 << 40, 0}, unix.ESRCH},
		{"setrlimit", []uint64{unix.RLIMIT_NOFILE, 1}, 0},
	}
	for _, request := range refusedRequests() {
		calls = append(calls, seccompCall{"ioctl", []uint64{0, uint64(request)}, unix.EPERM},
			seccompCall{"ioctl", []uint64{0, uint64(request) | 0xffffffff00000000}, unix.EPERM})
	}
	return append(calls, socketCalls()...)
}

func socketCalls() []seccompCall {
	const flags = unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	var calls []seccompCall
	for _, c := range []struct {
		family, kind, protocol uint64
		want                   unix.Errno
	}{
		{unix.AF_UNIX, unix.SOCK_STREAM, 0, 0},
		{unix.AF_UNIX, unix.SOCK_SEQPACKET, 0, 0},
		{unix.AF_INET, unix.SOCK_STREAM, 0, 0},
		{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP, 0},
		{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, unix.EPROTONOSUPPORT},
		{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP, unix.EPROTONOSUPPORT},
		{unix.AF_INET, unix.SOCK_STREAM, 256, unix.EPROTONOSUPPORT}, // SMC of Linux 6.11
		{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_UDP, unix.EPROTONOSUPPORT},
		{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP | 1<<32, unix.EPROTONOSUPPORT},
		{unix.AF_INET, unix.SOCK_STREAM, 1 << 31, unix.EPROTONOSUPPORT},
		{unix.AF_INET, unix.SOCK_DGRAM, 0, 0},
		{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDP, 0},
		{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP, 0},
		{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_L2TP, unix.EPROTONOSUPPORT},
		{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE, unix.EPROTONOSUPPORT},
		{unix.AF_INET, unix.SOCK_SEQPACKET, 0, unix.ESOCKTNOSUPPORT},
		{unix.AF_INET, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP, unix.ESOCKTNOSUPPORT},
		{unix.AF_INET, unix.SOCK_DCCP, unix.IPPROTO_DCCP, unix.ESOCKTNOSUPPORT},
		{unix.AF_INET, 0, 0, unix.ESOCKTNOSUPPORT},
		{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_L2TP, unix.EPERM},
		{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP, 0},
		{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6, 0},
		{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE, unix.EPROTONOSUPPORT},
		{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, unix.EPROTONOSUPPORT},
		{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE, 0},
		{unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_ROUTE, 0},
		{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER, unix.EPROTONOSUPPORT},
		{unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_SOCK_DIAG, unix.EPROTONOSUPPORT},
		{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_CRYPTO, unix.EPROTONOSUPPORT},
		{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC, unix.EPROTONOSUPPORT},
	} {
		calls = append(calls, seccompCall{"socket", []uint64{c.family, c.kind, c.protocol}, c.want},
			seccompCall{"socket", []uint64{c.family | 1<<32, c.kind | flags | 1<<40, c.protocol}, c.want})
	}
	return calls
}
