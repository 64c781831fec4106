package seccomp

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// RefuseMemory refuses memfd_create, unless it asks for a file that can never be executed. Such a file is on no mount that a
// program sees, and so Landlock lets everybody execute it. ENOSYS makes libraries fall back on files.
func RefuseMemory(s *specs.LinuxSeccomp) {
	name := []string{"memfd_create"}
	const known = unix.MFD_HUGETLB | unix.MFD_NOEXEC_SEAL
	for i := range s.Syscalls {
		if r := &s.Syscalls[i]; slices.Equal(r.Names, name) && r.Action == specs.ActAllow {
			r.Args = []specs.LinuxSeccompArg{masked(1, known, unix.MFD_NOEXEC_SEAL)}
		}
	}
	s.Syscalls = append(s.Syscalls, errno(unix.ENOSYS).rule(name, masked(1, known, 0)))
}
