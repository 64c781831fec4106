package seccomp

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// RefuseMountLists refuses the calls that tell what /proc/self/mountinfo does, such as the host paths of grants: for a program that
// has no /proc. ENOSYS is the answer of a kernel before 6.8.
func RefuseMountLists(s *specs.LinuxSeccomp) {
	names := []string{"listmount", "statmount"}
	for i := range s.Syscalls {
		r := &s.Syscalls[i]
		r.Names = slices.DeleteFunc(r.Names, func(n string) bool { return slices.Contains(names, n) })
	}
	s.Syscalls = append(slices.DeleteFunc(s.Syscalls, func(r specs.LinuxSyscall) bool { return len(r.Names) == 0 }), errno(unix.ENOSYS).rule(names))
}
