package spec

import (
	"errors"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// TestExecuteNeedsLandlock: nothing else holds the key, so no policy gets less.
func TestExecuteNeedsLandlock(t *testing.T) {
	for version, says := range map[int]string{0: "it needs Landlock 2, and this machine has 0", 1: "has 1", MinLandlock: "is no file that can be executed"} {
		for _, enforce := range []string{EnforceRequired, EnforceBestEffort} {
			_, err := resolve(t, "version = 1\nenforce = '"+enforce+"'\n[processes]\nexecute = ['/etc/services']", func(h *Host) { h.Landlock = version })
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(e.Message, says) {
				t.Errorf("Landlock %d, %s: got %v, want %q", version, enforce, err, says)
			}
		}
	}
}

// TestMemoryIsNotExecuted looks at what the profile says of memfd_create with each of some flags.
func TestMemoryIsNotExecuted(t *testing.T) {
	s := Seccomp("amd64", 6, 1)
	refuseMemory(s)
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
