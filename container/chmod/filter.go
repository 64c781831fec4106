package chmod

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
)

// askErrno marks, while the filter is compiled, what is to be asked.
const askErrno = 4095

// arguments are the places of a call's arguments; -1 where it has none.
type arguments struct{ dir, path, mode, flags int }

// calls are those that are asked. Calls that make files are not: the launcher cannot make a file for a program.
func calls() map[string]arguments {
	return map[string]arguments{
		"chmod": {-1, 0, 1, -1}, "fchmod": {0, -1, 1, -1}, "fchmodat": {0, 1, 2, -1}, "fchmodat2": {0, 1, 2, 3},
	}
}

// Filter is a profile's filter, which asks where the profile refuses a mode or a new file system. Where nobody answers, the kernel refuses it with ENOSYS.
func Filter(profile *specs.LinuxSeccomp, arch string) ([]unix.SockFilter, error) {
	asking := *profile
	asking.Syscalls = nil
	for _, r := range profile.Syscalls {
		var rest []string
		for _, name := range r.Names {
			if _, ok := calls()[name]; (!ok || !refusesMode(r)) && !refusesNew(r) {
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
	for i := range filter {
		if f := &filter[i]; f.Code == unix.BPF_RET|unix.BPF_K && f.K == unix.SECCOMP_RET_ERRNO|askErrno {
			f.K = unix.SECCOMP_RET_USER_NOTIF
		}
	}
	return filter, nil
}

// refusesMode reports whether a rule refuses a mode for one of the two bits, and for nothing else: spec/seccomp has it.
func refusesMode(r specs.LinuxSyscall) bool {
	if r.Action != specs.ActErrno || len(r.Args) != 1 || r.Args[0].Op != specs.OpMaskedEqual {
		return false
	}
	mask, value := r.Args[0].Value, r.Args[0].ValueTwo
	return mask == unix.S_ISUID && value == unix.S_ISUID || mask == unix.S_ISUID|unix.S_ISGID && value == unix.S_ISGID
}
