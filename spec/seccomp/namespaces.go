package seccomp

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// AllowNamespaces lets a program make user namespaces and what a sandbox of its own does in them, if the policy has
// processes.userns: bubblewrap and Chromium.
//
//   - clone and unshare make every namespace but a time namespace. setns stays refused: nobody needs it here.
//   - mount, umount2, pivot_root, chroot and sethostname go to the kernel, which wants a capability over the mounts, and so a
//     namespace of the program's own. But a new file system is refused: container/chmod makes a few kinds. Overlayfs would copy
//     set-user-id files into a writable grant; with a cgroup file system a program could raise its limits or end its caller, where both
//     are one user. The newer mount calls do not exist (ENOSYS), so that libmount uses mount: CVE-2022-0185 (fsconfig).
//   - No extended attribute is set (EOPNOTSUPP): root of a user namespace may set security.capability, which through an idmapped mount
//     counts on the host.
//   - The tables of iptables, arptables and ebtables cannot be set by socket options: CVE-2021-22555, CVE-2016-4997. nftables is
//     refused to every sandbox, with its family of sockets.
//   - Nobody changes the priority, scheduler, processors or I/O class of process 1, the supervisor. cap_safe_nice compares capabilities
//     without the user namespaces that they are for, so a capability of the supervisor's does not stop a program that is root in its own.
func AllowNamespaces(s *specs.LinuxSeccomp) {
	take(s, specs.ActErrno, []string{"unshare", "mount", "umount2", "pivot_root", "chroot", "sethostname"})
	take(s, specs.ActErrno, []string{"open_tree", "open_tree_attr", "move_mount", "mount_setattr", "fsopen", "fsconfig", "fsmount", "fspick"})
	s.Syscalls = slices.DeleteFunc(s.Syscalls, func(r specs.LinuxSyscall) bool {
		return slices.Equal(r.Names, []string{"clone"}) || slices.Equal(r.Names, []string{"setsockopt"})
	})
	const timeNamespace = unix.CLONE_NEWTIME // clone reads its bit as a part of the exit signal
	s.Syscalls = append(s.Syscalls,
		allowIt().rule([]string{"clone", "umount2", "pivot_root", "chroot", "sethostname"}),
		allowIt().rule([]string{"unshare"}, masked(0, timeNamespace, 0)),
		errno(unix.EPERM).rule([]string{"unshare"}, masked(0, timeNamespace, timeNamespace)),
		errno(unix.EOPNOTSUPP).rule(take(s, specs.ActAllow, []string{"setxattr", "lsetxattr", "fsetxattr", "setxattrat"})))
	s.Syscalls = append(s.Syscalls, mountRules()...)
	s.Syscalls = append(s.Syscalls, sockoptRules(true)...)
	s.Syscalls = append(s.Syscalls, supervisorRules(s)...)
}

// supervisorRules keep process 1 as it is. In a PID namespace of the program's own, process 1 is another, and refused all the same.
func supervisorRules(s *specs.LinuxSeccomp) []specs.LinuxSyscall {
	const supervisor = 1
	rules := sortLow32(take(s, specs.ActAllow, []string{"sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"}), 0,
		[]uint32{supervisor}, errno(unix.EPERM), allowIt())
	const prioUser, ioprioUser = 2, 3 // all processes of a user, the supervisor among them
	for name, user := range map[string]uint32{"setpriority": prioUser, "ioprio_set": ioprioUser} {
		names := take(s, specs.ActAllow, []string{name})
		if len(names) == 0 {
			continue
		}
		const kinds, maxPID = 2, 22 // bits: PID_MAX_LIMIT
		all, others, noKind := sortSmall(0, kinds, user)
		one, rest, above := sortSmall(1, maxPID, supervisor)
		rules = append(rules, errno(unix.EINVAL).rule(names, noKind), errno(unix.EPERM).rule(names, all[0]))
		for _, kind := range others {
			rules = append(rules, errno(unix.EPERM).rule(names, kind, one[0]), errno(unix.ESRCH).rule(names, kind, above))
			for _, pid := range rest {
				rules = append(rules, allowIt().rule(names, kind, pid))
			}
		}
	}
	return rules
}

// NewMount is the rule that refuses a new file system. container/chmod knows it by its errno.
const NewMount = unix.EACCES

// mountRules allow mount(2) unless it mounts a new file system. Which it is the kernel decides by these flags, in this order. MS_MGC_VAL
// in the upper half of the flags counts as no flag, and has the bits of MS_PRIVATE and MS_SHARED; its top bit is that of no flag.
func mountRules() []specs.LinuxSyscall {
	const flags, top = 3, 1 << 31
	name := []string{"mount"}
	var rules []specs.LinuxSyscall
	seen := uint64(0)
	allow := func(list ...uint64) {
		for _, flag := range list {
			rules = append(rules, allowIt().rule(name, masked(flags, seen|flag, flag)))
			seen |= flag
		}
	}
	allow(unix.MS_REMOUNT, unix.MS_BIND, unix.MS_MOVE)
	rules = append(rules, errno(NewMount).rule(name, masked(flags, seen|top, top)))
	seen |= top
	allow(unix.MS_SHARED, unix.MS_PRIVATE, unix.MS_SLAVE, unix.MS_UNBINDABLE)
	return append(rules, errno(NewMount).rule(name, masked(flags, seen, 0)))
}
