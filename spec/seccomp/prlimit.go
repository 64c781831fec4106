package seccomp

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// rlimitRules decide on the calls that change a limit.
//
// RLIMIT_CORE stays 1, as forkexec sets it. Only with 1 the kernel does not start the handler of kernel.core_pattern, which runs as
// root outside; with 0 it does. A call that sets the limit succeeds and changes nothing, because gpg and ssh-agent set it and
// exit if they cannot. forkexec.c has the rest.
//
// No program may change a limit of process 1, the supervisor: without descriptors or processor time the supervisor would fail.
func rlimitRules() []specs.LinuxSyscall {
	const pid, resource, newLimit, oldLimit = 0, 1, 2, 3
	// 16 resources; a kernel with more would have them above these bits, and none has had in twenty years.
	core, others := sortBits(resource, 4, unix.RLIMIT_CORE)
	rules := sortLow32([]string{"setrlimit"}, 0, []uint32{unix.RLIMIT_CORE}, errno(0), allowIt())
	names := []string{"prlimit64"}
	rules = append(rules,
		allowIt().rule(names, is(newLimit, 0)),
		errno(0).rule(names, core[0], more(newLimit, 0), is(oldLimit, 0)),
		errno(unix.EPERM).rule(names, core[0], more(newLimit, 0), more(oldLimit, 0))) // the filter could not fill in the old limit
	const maxPID = 22 // bits: PID_MAX_LIMIT
	one, rest, above := sortSmall(pid, maxPID, 1)
	for _, r := range others {
		rules = append(rules,
			errno(unix.EPERM).rule(names, r, more(newLimit, 0), one[0]),
			errno(unix.ESRCH).rule(names, r, more(newLimit, 0), above))
		for _, p := range rest {
			rules = append(rules, allowIt().rule(names, r, more(newLimit, 0), p))
		}
	}
	return rules
}
