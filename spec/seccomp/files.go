package seccomp

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// setIDRules refuse to make a setuid or setgid file. Inside such a file gives nothing. In a writable grant it would give the caller's
// rights, and with a root launcher root's, to everybody who executes it outside. systemd's RestrictSUIDSGID has the same rules.
// In our own sandboxes the chmod calls are asked, not refused (container/chmod).
func setIDRules() []specs.LinuxSyscall {
	const creates, tmpfile = unix.O_CREAT, unix.O_TMPFILE &^ unix.O_DIRECTORY // without these open ignores its mode
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

// Commands of fcntl that package unix does not have, and the first of those that are Linux's own.
const (
	fLinux         = 1024
	fDupfdQuery    = fLinux + 3
	fCreatedQuery  = fLinux + 4
	fGetDelegation = fLinux + 15
)

// fcntlRules allow the commands that act on the program's own descriptors, and locks. All other commands answer EINVAL, as on a
// kernel that is built without them. Unknown commands are refused too, because new ones belonged to the refused kind (F_SETDELEG,
// Linux 6.19). On a readable descriptor the refused commands stop other processes, or show what they do: all others' open and
// execve of a file wait for the end of a lease (F_SETLEASE), 45 seconds by default; a delegation is a lease of a directory;
// F_NOTIFY reports reads; F_SET_RW_HINT sets the expected lifetime of a file's data for all its users.
func fcntlRules() []specs.LinuxSyscall {
	const bits = 11
	each, rest, above := sortSmall(1, bits, unix.F_GETLEASE, fDupfdQuery, fCreatedQuery, unix.F_DUPFD_CLOEXEC, unix.F_SETPIPE_SZ,
		unix.F_GETPIPE_SZ, unix.F_ADD_SEALS, unix.F_GET_SEALS, unix.F_GET_RW_HINT, unix.F_GET_FILE_RW_HINT, fGetDelegation)
	var rules []specs.LinuxSyscall
	for _, a := range each {
		rules = append(rules, allowIt().rule([]string{"fcntl"}, a))
	}
	for _, a := range append(rest, above) {
		o := errno(unix.EINVAL)
		if a.Op == specs.OpMaskedEqual && a.ValueTwo < fLinux {
			o = allowIt()
		}
		rules = append(rules, o.rule([]string{"fcntl"}, a))
	}
	return rules
}

const dropPages = 4 // POSIX_FADV_DONTNEED

// cacheRules protect the page cache, which the whole machine shares. To drop pages (POSIX_FADV_DONTNEED) is advice, which a kernel
// may ignore, so the call succeeds and does nothing. A read of cached pages only (RWF_NOWAIT) shows which files others have read,
// so it is refused as by file systems that do not support it. ("Page Cache Attacks", Gruss et al. 2019)
func cacheRules() []specs.LinuxSyscall {
	reads := []string{"preadv2"}
	return append(sortLow32([]string{"fadvise64"}, 3, []uint32{dropPages}, errno(0), allowIt()),
		allowIt().rule(reads, masked(5, unix.RWF_NOWAIT, 0)),
		errno(unix.EOPNOTSUPP).rule(reads, masked(5, unix.RWF_NOWAIT, unix.RWF_NOWAIT)))
}

// inotifyRules refuse events of reading, because IN_OPEN on /usr/bin shows which programs the host and other sandboxes execute.
// Events of changes are allowed. The errno is ENOSPC, because some file watchers then fall back on polling. (watchexec#93)
func inotifyRules() []specs.LinuxSyscall {
	names := []string{"inotify_add_watch"}
	const mask, all = 2, unix.IN_ACCESS | unix.IN_OPEN | unix.IN_CLOSE_NOWRITE
	rules := []specs.LinuxSyscall{allowIt().rule(names, masked(mask, all, 0))}
	for left := uint64(all); left != 0; left &= left - 1 { // by the lowest of the bits that is set
		bit := left & -left
		rules = append(rules, errno(unix.ENOSPC).rule(names, masked(mask, all&(bit|(bit-1)), bit)))
	}
	return rules
}

// hugePageRules refuse huge pages, because the machine has one pool of them and no memory limit counts them. The errno is that of a
// machine with an empty pool; language runtimes then use ordinary memory. Of memfd_create it is that of a kernel that does not know the
// flag, because Chromium calls it with all flags set and ends unless that is EINVAL.
func hugePageRules() []specs.LinuxSyscall {
	const shmHuge = 0o4000 // SHM_HUGETLB
	var rules []specs.LinuxSyscall
	for _, c := range []struct {
		name  string
		index uint // of the flags
		bit   uint64
		errno unix.Errno
	}{
		{"mmap", 3, unix.MAP_HUGETLB, unix.ENOMEM},
		{"memfd_create", 1, unix.MFD_HUGETLB, unix.EINVAL},
		{"shmget", 2, shmHuge, unix.ENOMEM},
	} {
		names := []string{c.name}
		rules = append(rules, allowIt().rule(names, masked(c.index, c.bit, 0)), errno(c.errno).rule(names, masked(c.index, c.bit, c.bit)))
	}
	return rules
}
