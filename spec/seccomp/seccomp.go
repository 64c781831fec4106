// Package seccomp makes the seccomp profile of programs, in the terms of OCI: an allowlist of system calls, with rules for arguments.
// Whatever is not named fails, with EPERM if the call is known and with ENOSYS if it is not, so that libraries fall back on older
// calls. forkexec compiles the profile. It imports none of ours.
package seccomp

import (
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Profile returns the system call filter of a sandboxed program as an OCI profile. It is what moby allows a container
// without any capability on the given machine (a GOARCH, and the two first numbers of the kernel's version), less what
// a sandbox that shares its kernel with its caller must not offer:
//
//   - namespaces: unshare, setns, clone with any CLONE_NEW* flag; clone3 does not exist (ENOSYS);
//   - mounts: mount, umount2, pivot_root, chroot, open_tree, move_mount, fsopen, fsconfig, fsmount, fspick,
//     mount_setattr; also open_by_handle_at;
//   - ioctl requests that type into a terminal or have the kernel load modules;
//   - add_key, request_key, keyctl; io_uring_*; userfaultfd; bpf; perf_event_open;
//   - kcmp, pidfd_getfd, process_madvise, vmsplice (ptrace and process_vm_* as moby: allowed from Linux 4.8 on);
//   - calls that change the whole machine: the clock, the host name, modules, kexec, reboot, swap, quotas, accounting, the
//     kernel's log, I/O ports, NUMA policies;
//   - personality, except the five values that moby allows;
//   - sockets other than Unix, TCP, UDP and ping sockets, and NETLINK_ROUTE; upper layer protocols of TCP;
//   - calls on a readable file that act on the host or show what the host does with the file: leases, directory
//     notifications, inotify events of reading, sync, syncfs, cachestat, reads of cached pages only, dropping of pages;
//   - resources of which the machine has one small pool: contexts of io_setup, huge pages;
//   - a new RLIMIT_CORE, and any new limit of process 1;
//   - making a file setuid or setgid, by chmod (container/chmod then sets the mode without the bit) or as it is created; openat2 does not exist (ENOSYS), because a
//     filter cannot see its mode;
//   - every other architecture's system calls, x32 included.
//
// A refused call answers EPERM, unless programs fall back on another errno. An unknown call, or one newer than the table, answers
// ENOSYS as on an older kernel, so that C libraries fall back.
//
// OCI can express every rule, so every runtime can use the profile: no two rules of one call overlap, and none compares an argument
// twice. For another architecture the profile refuses everything.
func Profile(arch string, major, minor int) *specs.LinuxSeccomp {
	known := knownCalls(arch)
	if known == nil {
		return &specs.LinuxSeccomp{DefaultAction: specs.ActKillProcess}
	}
	allowed, personalities := mobyAllows(arch, major, minor)
	for _, name := range neverAllowed() {
		delete(allowed, name)
	}
	byArgs := argumentRules(personalities)
	tested := map[string]bool{}
	for _, r := range byArgs {
		for _, name := range r.Names {
			tested[name] = true
		}
	}

	var allow, refuse []string
	for _, name := range known {
		switch {
		case tested[name]:
		case slices.Contains(asOfOld(), name): // ENOSYS, the default
		case allowed[name]:
			allow = append(allow, name)
		default:
			refuse = append(refuse, name)
		}
	}
	rules := append([]specs.LinuxSyscall{{Names: allow, Action: specs.ActAllow}, errno(unix.EPERM).rule(refuse)}, byArgs...)
	return &specs.LinuxSeccomp{
		DefaultAction:   specs.ActErrno,
		DefaultErrnoRet: errno(unix.ENOSYS).ErrnoRet,
		Architectures:   []specs.Arch{ociArch(arch)},
		Syscalls:        rules,
	}
}

// argumentRules are the rules that compare arguments. No call is in two of these lists.
func argumentRules(personalities []uint32) []specs.LinuxSyscall {
	return slices.Concat(
		cloneRules(),
		sortLow32([]string{"ioctl"}, 1, refusedRequests(), errno(unix.EPERM), allowIt()),
		sortLow32([]string{"personality"}, 0, personalities, allowIt(), errno(unix.EPERM)),
		setIDRules(),
		socketRules(),
		sockoptRules(false),
		fcntlRules(),
		cacheRules(),
		inotifyRules(),
		hugePageRules(),
		rlimitRules(),
	)
}

// asOfOld are calls that answer ENOSYS, as on an older kernel, so that programs fall back.
func asOfOld() []string {
	return []string{
		// Their flags lie in memory, where no filter sees them. With EPERM glibc cannot make a thread: moby#42680,
		// containerd#5982.
		"clone3", "openat2",

		// Shows which pages of a readable file are cached, and so which files the host and other sandboxes execute. The
		// kernel requires write permission only since 6.14.
		"cachestat",

		// fs.aio-max-nr is one pool for all users of the machine. MySQL and nginx do without.
		"io_setup",

		// Writes out a whole file system through any descriptor of it. Programs fall back on fsync.
		"syncfs",
	}
}

// RefuseAffinity refuses changes of the processors that a program runs on, if affinity enforces limits.cpus.
func RefuseAffinity(s *specs.LinuxSeccomp) {
	for i := range s.Syscalls {
		names := s.Syscalls[i].Names
		at := slices.Index(names, "sched_setaffinity")
		if at < 0 || s.Syscalls[i].Action != specs.ActAllow {
			continue
		}
		s.Syscalls[i].Names = slices.Delete(names, at, at+1)
		s.Syscalls = append(s.Syscalls, errno(unix.EPERM).rule([]string{"sched_setaffinity"}))
		return
	}
}

// neverAllowed are calls that stay refused even if a later version of moby allows them.
func neverAllowed() []string {
	return []string{
		// A user namespace gives every capability over resources made in it, and so access to the kernel's least
		// tested code, and a way to remove a mask: CVE-2022-0185, CVE-2023-32233, bubblewrap#488.
		"unshare", "setns",

		// Masks, denies and read-only grants are mounts.
		"mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount", "mount_setattr",
		"fsopen", "fsconfig", "fsmount", "fspick",

		// Opens files by inode, and so bypasses every path: the "shocker" break-out of docker, 2014.
		"open_by_handle_at",

		// Keyrings belong to a user, not to a namespace: CVE-2016-0728, CVE-2014-9529.
		"add_key", "request_key", "keyctl",

		// Makes other system calls, and this filter does not see them; 60 % of the kernel exploits of Google's kCTF in
		// 2022, CVE-2022-2602, CVE-2023-2598.
		"io_uring_setup", "io_uring_enter", "io_uring_register",

		// Stops the kernel in the middle of a copy, which makes races easy to win, as for CVE-2016-6187;
		// the kernel has a switch against it since 5.2, vm.unprivileged_userfaultfd.
		"userfaultfd",

		// CVE-2020-8835, CVE-2021-3490 (bpf); CVE-2013-2094 (perf_event_open).
		"bpf", "perf_event_open",

		// Other processes' files and memory.
		"kcmp", "pidfd_getfd", "process_madvise",

		// Puts pages of the program into a pipe, where the memory watcher cannot count them once they are unmapped.
		"vmsplice",

		// The whole machine.
		"acct", "clock_settime", "delete_module", "finit_module", "init_module", "ioperm", "iopl", "kexec_file_load",
		"kexec_load", "quotactl", "quotactl_fd", "reboot", "setdomainname", "sethostname", "settimeofday", "swapoff",
		"swapon", "syslog", "vhangup",

		// Writes out every file system of the machine. sync(3) returns nothing, so no program notices.
		"sync",
	}
}

// mobyAllows returns the calls that moby allows with all arguments, and the values that it allows for personality(2). Other calls
// that moby allows with some arguments have their own rules here.
func mobyAllows(arch string, major, minor int) (names map[string]bool, personalities []uint32) {
	kernel := seccomp.KernelVersion{Kernel: uint64(max(major, 0)), Major: uint64(max(minor, 0))}
	names = make(map[string]bool, 512)
	for _, r := range seccomp.DefaultProfile().Syscalls {
		if r.Action != specs.ActAllow || !applies(r, arch, kernel) {
			continue
		}
		switch {
		case len(r.Args) == 0:
			for _, name := range r.Names {
				names[name] = true
			}
		case slices.Equal(r.Names, []string{"personality"}) && len(r.Args) == 1 && r.Args[0].Op == specs.OpEqualTo:
			personalities = append(personalities, uint32(r.Args[0].Value))
		}
	}
	return names, personalities
}

// applies reports whether a rule of moby holds for a process without capabilities.
func applies(r *seccomp.Syscall, arch string, kernel seccomp.KernelVersion) bool {
	reached := func(v *seccomp.KernelVersion) bool {
		return kernel.Kernel > v.Kernel || kernel.Kernel == v.Kernel && kernel.Major >= v.Major
	}
	if in := r.Includes; in != nil {
		if len(in.Caps) > 0 || len(in.Arches) > 0 && !slices.Contains(in.Arches, arch) ||
			in.MinKernel != nil && !reached(in.MinKernel) {
			return false
		}
	}
	if ex := r.Excludes; ex != nil {
		return !slices.Contains(ex.Arches, arch) && (ex.MinKernel == nil || !reached(ex.MinKernel))
	}
	return true
}

// ociArch is OCI's name of a GOARCH that knownCalls supports.
func ociArch(arch string) specs.Arch {
	if arch == "arm64" {
		return specs.ArchAARCH64
	}
	return specs.ArchX86_64
}
