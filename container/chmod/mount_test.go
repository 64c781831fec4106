package chmod

import (
	"runtime"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxrun/sandboxrun/spec/seccomp"
)

// TestAskingForMounts: only with processes.userns some rules are taken for those of new file systems, and the filter can be compiled.
func TestAskingForMounts(t *testing.T) {
	for _, userns := range []bool{false, true} {
		profile, want := seccomp.Profile(runtime.GOARCH, 6, 1), 0
		if userns {
			seccomp.AllowNamespaces(profile)
			want = 2
		}
		if n := len(slices.DeleteFunc(slices.Clone(profile.Syscalls), func(r specs.LinuxSyscall) bool { return !refusesNew(r) })); n != want {
			t.Errorf("userns %v: %d rules are taken for those of new file systems, want %d", userns, n, want)
		}
		if _, err := Filter(profile, runtime.GOARCH); err != nil {
			t.Error(err)
		}
	}
}
