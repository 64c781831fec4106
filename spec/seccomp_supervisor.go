package spec

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// supervisorCalls are the calls that supervisorRules decide by their arguments.
func supervisorCalls() []string { return []string{"prlimit64"} }

// supervisorRules keep the limits of process 1 out of the program's reach. For prlimit64 the kernel compares user ids
// alone, and without other ids to use the supervisor has the program's: a limit of processor time would then let the
// program kill the supervisor. Every other process that the program can see is its own.
func supervisorRules() []specs.LinuxSyscall {
	return sortLow32(supervisorCalls(), 0, []uint32{1}, errno(unix.EPERM), allowIt())
}
