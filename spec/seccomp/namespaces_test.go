package seccomp

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// TestAllowNamespaces looks at what processes.userns lets through, and at what it still refuses, and that no two rules match one call.
func TestAllowNamespaces(t *testing.T) {
	const high, magic = 1 << 32, 0xc0ed0000
	calls := []seccompCall{
		{"clone", []uint64{unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWCGROUP | uint64(unix.SIGCHLD)}, 0},
		{"unshare", []uint64{unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET}, 0},
		{"unshare", []uint64{unix.CLONE_NEWUSER | unix.CLONE_NEWTIME}, unix.EPERM},
		{"clone3", nil, unix.ENOSYS},
		{"setns", nil, unix.EPERM},
		{"open_by_handle_at", nil, unix.EPERM},
		{"setdomainname", nil, unix.EPERM},
		{"bpf", nil, unix.EPERM},
		{"keyctl", nil, unix.EPERM},
		{"umount2", nil, 0},
		{"pivot_root", nil, 0},
		{"chroot", nil, 0},
		{"sethostname", nil, 0},
		{"fsopen", nil, unix.ENOSYS},
		{"fsconfig", nil, unix.ENOSYS},
		{"fsmount", nil, unix.ENOSYS},
		{"open_tree", nil, unix.ENOSYS},
		{"move_mount", nil, unix.ENOSYS},
		{"mount_setattr", nil, unix.ENOSYS},
		{"fspick", nil, unix.ENOSYS},
		{"setxattr", nil, unix.EOPNOTSUPP},
		{"fsetxattr", nil, unix.EOPNOTSUPP},
		{"lsetxattr", nil, unix.EOPNOTSUPP},
		{"getxattr", nil, 0},
		{"setsockopt", []uint64{3, unix.SOL_IP, 64}, unix.ENOPROTOOPT},
		{"setsockopt", []uint64{3, unix.SOL_IP | high, 64 | high}, unix.ENOPROTOOPT},
		{"setsockopt", []uint64{3, unix.SOL_IP, 128}, unix.ENOPROTOOPT},
		{"setsockopt", []uint64{3, unix.SOL_IPV6, 64}, unix.ENOPROTOOPT},
		{"setsockopt", []uint64{3, unix.SOL_IPV6, 65 | high}, unix.ENOPROTOOPT},
		{"setsockopt", []uint64{3, unix.SOL_IPV6, unix.IPV6_TCLASS}, 0},
		{"setsockopt", []uint64{3, unix.SOL_IP, unix.IP_TTL}, 0},
		{"setsockopt", []uint64{3, unix.IPPROTO_TCP, unix.TCP_ULP}, unix.ENOPROTOOPT},
		{"setsockopt", []uint64{3, unix.SOL_SOCKET, unix.SO_REUSEADDR}, 0},
		{"sched_setscheduler", []uint64{1}, unix.EPERM},
		{"sched_setscheduler", []uint64{1 | high}, unix.EPERM},
		{"sched_setscheduler", []uint64{0}, 0},
		{"sched_setaffinity", []uint64{1}, unix.EPERM},
		{"sched_setaffinity", []uint64{77}, 0},
		{"sched_setattr", []uint64{1}, unix.EPERM},
		{"sched_setparam", []uint64{1}, unix.EPERM},
		{"setpriority", []uint64{unix.PRIO_PROCESS, 1, 19}, unix.EPERM},
		{"setpriority", []uint64{unix.PRIO_PROCESS, 1 | high, 19}, unix.ESRCH},
		{"setpriority", []uint64{unix.PRIO_PROCESS, 0, 19}, 0},
		{"setpriority", []uint64{unix.PRIO_PGRP, 77, 19}, 0},
		{"setpriority", []uint64{unix.PRIO_USER, 0, 19}, unix.EPERM},
		{"setpriority", []uint64{unix.PRIO_USER | high, 0, 19}, unix.EINVAL},
		{"ioprio_set", []uint64{1, 1, 0}, unix.EPERM},
		{"ioprio_set", []uint64{3, 1000, 0}, unix.EPERM},
		{"ioprio_set", []uint64{1, 0, 0}, 0},
	}
	for flags, refused := range map[uint64]bool{
		0: true, unix.MS_NODEV: true, magic: true, magic | unix.MS_NODEV: true, 1 << 31: true, 1<<31 | unix.MS_PRIVATE: true, 1 << 30: true,
		unix.MS_BIND: false, unix.MS_BIND | unix.MS_REC: false, unix.MS_REMOUNT | unix.MS_BIND: false, unix.MS_REMOUNT | magic: false, unix.MS_MOVE: false,
		unix.MS_PRIVATE | unix.MS_REC: false, unix.MS_SLAVE | unix.MS_SILENT: false, unix.MS_SHARED | unix.MS_PRIVATE: false, unix.MS_UNBINDABLE: false,
	} {
		want := unix.Errno(0)
		if refused {
			want = NewMount
		}
		calls = append(calls, seccompCall{"mount", []uint64{0, 0, 0, flags, 0}, want}, seccompCall{"mount", []uint64{0, 0, 0, flags | high, 7}, want})
	}
	for _, arch := range []string{"amd64", "arm64"} {
		p := Profile(arch, 6, 1)
		AllowNamespaces(p)
		for _, c := range calls {
			want := specs.ActErrno
			if c.want == 0 {
				want = specs.ActAllow
			}
			if action, errno := seccompActs(t, p, c.name, c.args...); action != want || errno != uint(c.want) {
				t.Errorf("%s: %s %#x: %s %d, want %d", arch, c.name, c.args, action, errno, c.want)
			}
		}
		RefuseAffinity(p)
	}
	one := Profile("amd64", 6, 1)
	RefuseAffinity(one)
	AllowNamespaces(one)
	if action, _ := seccompActs(t, one, "sched_setaffinity", 0); action == specs.ActAllow {
		t.Error("sched_setaffinity is allowed, though it is refused to programs that may not choose their processors")
	}
}
