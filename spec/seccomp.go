package spec

import (
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// The terminal requests that type into the terminal's own input: what they put there, the caller's shell reads when the
// sandbox has ended. The numbers are the same on amd64 and arm64.
const (
	tiocsti   = 0x5412 // CVE-2017-5226 (bubblewrap), CVE-2019-10063 (flatpak), bubblewrap#142
	tioclinux = 0x541C // CVE-2023-28100 (flatpak): a virtual console's paste
)

// cloneNamespaces are the CLONE_NEW* flags of clone(2). CLONE_NEWTIME is not among them: clone reads its bit as a part
// of the exit signal, and only unshare and clone3, which are refused, know it.
const cloneNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Seccomp returns the system call filter of a sandboxed program as an OCI profile. It is what moby allows a container
// without any capability on the given machine (a GOARCH, and the two first numbers of the kernel's version), less what
// a sandbox that shares its kernel with its caller must not offer:
//
//   - namespaces: unshare, setns, clone with any CLONE_NEW* flag; clone3 does not exist (ENOSYS);
//   - mounts: mount, umount2, pivot_root, chroot, open_tree, move_mount, fsopen, fsconfig, fsmount, fspick,
//     mount_setattr; also open_by_handle_at;
//   - ioctl with TIOCSTI or TIOCLINUX, whatever the high half of the request is;
//   - add_key, request_key, keyctl; io_uring_*; userfaultfd; bpf; perf_event_open;
//   - kcmp, pidfd_getfd, process_madvise (ptrace and process_vm_* as moby: allowed from Linux 4.8 on);
//   - what changes the whole machine: the clock, the host name, modules, kexec, reboot, swap, quotas, accounting, the
//     kernel's log, I/O ports, NUMA policies;
//   - personality, but for the five values that moby allows;
//   - socket and socketpair of a family other than AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK (EAFNOSUPPORT): so no
//     AF_VSOCK, which no network namespace contains;
//   - making a file setuid or setgid, by chmod or as it is created; openat2 does not exist (ENOSYS), since a filter
//     cannot see the mode that it is given;
//   - every other architecture's system calls, x32 included.
//
// A call that is refused answers EPERM. One that is not known, or newer than the table, answers ENOSYS as from an older
// kernel, and C libraries fall back.
//
// Every rule can be said in OCI's terms to any runtime: no two rules of one call overlap, and none compares an argument
// twice. For another architecture the result refuses everything.
func Seccomp(arch string, major, minor int) *specs.LinuxSeccomp {
	known := knownCalls(arch)
	if known == nil {
		return &specs.LinuxSeccomp{DefaultAction: specs.ActKillProcess}
	}
	allowed, personalities := mobyAllows(arch, major, minor)
	for _, name := range neverAllowed() {
		delete(allowed, name)
	}
	setIDs := setIDRules()
	byArgs := []string{"clone", "ioctl", "personality", "socket", "socketpair"}
	byArgs = append(byArgs, supervisorCalls()...)
	for _, r := range setIDs {
		byArgs = append(byArgs, r.Names...)
	}

	var allow, refuse []string
	for _, name := range known {
		switch {
		case slices.Contains(byArgs, name):
		case name == "clone3", name == "openat2":
			// Their flags lie in memory, where no filter sees them. Not EPERM but the default, ENOSYS, or else glibc
			// cannot make a thread: moby#42680, containerd#5982.
		case allowed[name]:
			allow = append(allow, name)
		default:
			refuse = append(refuse, name)
		}
	}
	rules := []specs.LinuxSyscall{
		{Names: allow, Action: specs.ActAllow},
		errno(unix.EPERM).rule(refuse),
	}
	rules = append(rules, cloneRules()...)
	rules = append(rules, sortLow32([]string{"ioctl"}, 1, []uint32{tiocsti, tioclinux}, errno(unix.EPERM), allowIt())...)
	rules = append(rules, sortLow32([]string{"personality"}, 0, personalities, allowIt(), errno(unix.EPERM))...)
	rules = append(rules, socketRules()...)
	rules = append(rules, setIDs...)
	rules = append(rules, supervisorRules()...)
	return &specs.LinuxSeccomp{
		DefaultAction:   specs.ActErrno,
		DefaultErrnoRet: errno(unix.ENOSYS).ErrnoRet,
		Architectures:   []specs.Arch{ociArch(arch)},
		Syscalls:        rules,
	}
}

// refuseAffinity keeps a program on the processors that it was given, where that is what limits it.
func refuseAffinity(s *specs.LinuxSeccomp) {
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

// neverAllowed are calls that stay refused even if moby should come to allow them.
func neverAllowed() []string {
	return []string{
		// A user namespace gives back every capability over what is made in it, and with that the kernel's least
		// tested code and the means to take a mask off: CVE-2022-0185, CVE-2023-32233, bubblewrap#488.
		"unshare", "setns",

		// Masks, denies and read-only grants are mounts.
		"mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount", "mount_setattr",
		"fsopen", "fsconfig", "fsmount", "fspick",

		// Opens files by number and so around every path: the "shocker" break-out of docker, 2014.
		"open_by_handle_at",

		// Keyrings belong to a user, not to a namespace: CVE-2016-0728, CVE-2014-9529.
		"add_key", "request_key", "keyctl",

		// Does what other system calls do, but past this filter; 60 % of the kernel exploits of Google's kCTF in
		// 2022, CVE-2022-2602, CVE-2023-2598.
		"io_uring_setup", "io_uring_enter", "io_uring_register",

		// Stops the kernel in the middle of a copy, which makes races easy to win, as for CVE-2016-6187;
		// the kernel has a switch against it since 5.2, vm.unprivileged_userfaultfd.
		"userfaultfd",

		// CVE-2020-8835, CVE-2021-3490 (bpf); CVE-2013-2094 (perf_event_open).
		"bpf", "perf_event_open",

		// Other processes' files and memory.
		"kcmp", "pidfd_getfd", "process_madvise",

		// The whole machine.
		"acct", "clock_settime", "delete_module", "finit_module", "init_module", "ioperm", "iopl", "kexec_file_load",
		"kexec_load", "quotactl", "quotactl_fd", "reboot", "setdomainname", "sethostname", "settimeofday", "swapoff",
		"swapon", "syslog", "vhangup",
	}
}

// mobyAllows returns the calls that moby allows without a look at their arguments, and the values that it allows for
// personality(2). The other calls that it allows by their arguments have rules of their own here.
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

// applies says whether a rule of moby's holds for a process without capabilities.
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

// cloneRules allow clone unless it makes a namespace.
func cloneRules() []specs.LinuxSyscall {
	test := func(o outcome, mask, value uint64) specs.LinuxSyscall {
		return o.rule([]string{"clone"}, specs.LinuxSeccompArg{Value: mask, ValueTwo: value, Op: specs.OpMaskedEqual})
	}
	rules := []specs.LinuxSyscall{test(allowIt(), cloneNamespaces, 0)}
	for left := uint64(cloneNamespaces); left != 0; left &= left - 1 {
		bit := left & -left
		rules = append(rules, test(errno(unix.EPERM), bit, bit))
	}
	return rules
}

// socketRules allow the families that work in an empty network namespace without a capability. Of the others some are
// in no namespace at all (AF_VSOCK, AF_QIPCRTR), and all are a way into rarely used code (RDS: CVE-2010-3904, TIPC:
// CVE-2021-43267 and CVE-2022-0435) whose module the kernel loads for anyone who asks. flatpak and
// systemd's RestrictAddressFamilies draw the same line and answer EAFNOSUPPORT, which programs expect of socket(2).
func socketRules() []specs.LinuxSyscall {
	families := []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}
	return sortLow32([]string{"socket", "socketpair"}, 0, families, allowIt(), errno(unix.EAFNOSUPPORT))
}

// setIDRules keep a program from leaving a setuid or setgid file in a directory that the host sees: inside it gives
// nothing, but outside anybody who executes it becomes its owner, who is the caller, and with a root launcher root.
// systemd's RestrictSUIDSGID draws the same line.
func setIDRules() []specs.LinuxSyscall {
	const creates, tmpfile = unix.O_CREAT, unix.O_TMPFILE &^ unix.O_DIRECTORY // without these open ignores its mode
	masked := func(index uint, mask, value uint64) specs.LinuxSeccompArg {
		return specs.LinuxSeccompArg{Index: index, Value: mask, ValueTwo: value, Op: specs.OpMaskedEqual}
	}
	// Either bit, as two tests that exclude each other.
	bad := func(index uint) []specs.LinuxSeccompArg {
		return []specs.LinuxSeccompArg{
			masked(index, unix.S_ISUID, unix.S_ISUID), masked(index, unix.S_ISUID|unix.S_ISGID, unix.S_ISGID),
		}
	}
	var rules []specs.LinuxSyscall
	for _, call := range []struct {
		names []string
		mode  uint // its argument
	}{{[]string{"chmod", "fchmod", "creat", "mknod"}, 1}, {[]string{"fchmodat", "fchmodat2", "mknodat"}, 2}} {
		rules = append(rules, allowIt().rule(call.names, masked(call.mode, unix.S_ISUID|unix.S_ISGID, 0)))
		for _, b := range bad(call.mode) {
			rules = append(rules, errno(unix.EPERM).rule(call.names, b))
		}
	}
	for i, name := range []string{"open", "openat"} {
		names, flags, mode := []string{name}, uint(1+i), uint(2+i)
		rules = append(rules, allowIt().rule(names, masked(mode, unix.S_ISUID|unix.S_ISGID, 0)))
		for _, b := range bad(mode) {
			rules = append(
				rules,
				allowIt().rule(names, b, masked(flags, creates|tmpfile, 0)),
				errno(unix.EPERM).rule(names, b, masked(flags, creates, creates)),
				errno(unix.EPERM).rule(names, b, masked(flags, creates|tmpfile, tmpfile)))
		}
	}
	return rules
}

// outcome is the action of a rule, and its errno if it has one.
type outcome specs.LinuxSyscall

func allowIt() outcome { return outcome{Action: specs.ActAllow} }

func errno(e unix.Errno) outcome {
	n := uint(e)
	return outcome{Action: specs.ActErrno, ErrnoRet: &n}
}

func (o outcome) rule(names []string, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
	return specs.LinuxSyscall{Names: names, Action: o.Action, ErrnoRet: o.ErrnoRet, Args: args}
}

// sortLow32 gives the calls the outcome listed when the argument's low 32 bits are one of values, and other when they are
// not. The kernel takes these arguments as 32-bit numbers and ignores the high half, so a comparison of all 64 bits
// would be passed by setting one of them.
//
// OCI has no "else", and its rules for one call may not overlap; so other is given to the blocks of numbers, each with a
// common prefix of bits, that lie between the values.
func sortLow32(names []string, index uint, values []uint32, listed, other outcome) []specs.LinuxSyscall {
	var rules []specs.LinuxSyscall
	match := func(o outcome, prefix uint32, free int) {
		mask := uint64(^uint32(0)) >> free << free
		rules = append(rules, o.rule(names,
			specs.LinuxSeccompArg{Index: index, Value: mask, ValueTwo: uint64(prefix), Op: specs.OpMaskedEqual}))
	}
	var block func(prefix uint32, free int, within []uint32)
	block = func(prefix uint32, free int, within []uint32) {
		switch {
		case len(within) == 0:
			match(other, prefix, free)
		case free == 0:
			match(listed, prefix, 0)
		default:
			middle := prefix | 1<<(free-1)
			n, _ := slices.BinarySearch(within, middle)
			block(prefix, free-1, within[:n])
			block(middle, free-1, within[n:])
		}
	}
	block(0, 32, slices.Sorted(slices.Values(values)))
	return rules
}

// ociArch is OCI's name of a GOARCH that knownCalls has.
func ociArch(arch string) specs.Arch {
	if arch == "arm64" {
		return specs.ArchAARCH64
	}
	return specs.ArchX86_64
}
