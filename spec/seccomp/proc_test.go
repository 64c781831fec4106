package seccomp

import (
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestRefuseMountLists: one rule is about each of the two calls, before and after.
func TestRefuseMountLists(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		for refuse, want := range map[bool]specs.LinuxSeccompAction{false: specs.ActAllow, true: specs.ActErrno} {
			s := Profile(arch, 6, 18)
			if refuse {
				RefuseMountLists(s)
			}
			for _, name := range []string{"listmount", "statmount"} {
				var got []specs.LinuxSeccompAction
				for _, r := range s.Syscalls {
					if slices.Contains(r.Names, name) {
						got = append(got, r.Action)
					}
				}
				if len(got) != 1 || got[0] != want {
					t.Errorf("%s: %s: %q, want %q", arch, name, got, want)
				}
			}
		}
	}
}
