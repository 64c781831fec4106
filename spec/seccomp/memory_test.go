package seccomp

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// TestMemoryIsNotExecuted looks at what the profile says of memfd_create with each of some flags.
func TestMemoryIsNotExecuted(t *testing.T) {
	s := Profile("amd64", 6, 1)
	RefuseMemory(s)
	for flags, want := range map[uint64]bool{
		0: false, unix.MFD_CLOEXEC: false, unix.MFD_EXEC: false, unix.MFD_NOEXEC_SEAL: true, unix.MFD_NOEXEC_SEAL | unix.MFD_CLOEXEC: true,
		unix.MFD_NOEXEC_SEAL | unix.MFD_HUGETLB: false,
	} {
		allowed := false
		for _, r := range s.Syscalls {
			if r.Names[0] == "memfd_create" && flags&r.Args[0].Value == r.Args[0].ValueTwo {
				allowed = r.Action == specs.ActAllow
				break
			}
		}
		if allowed != want {
			t.Errorf("memfd_create with %#x is allowed: %v, want %v", flags, allowed, want)
		}
	}
}
