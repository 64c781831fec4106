package seccomp

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// TestNoSpawnFilter looks at what the profile says of clone with each of some flags.
func TestNoSpawnFilter(t *testing.T) {
	const thread = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD | unix.CLONE_SYSVSEM
	for _, arch := range []string{"amd64", "arm64"} {
		for _, off := range []bool{false, true} {
			s := Profile(arch, 6, 1)
			if off {
				RefuseSpawn(s)
			}
			for flags, spawns := range map[uint64]bool{
				uint64(unix.SIGCHLD): true, unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD): true, thread: false,
			} {
				if got, want := cloned(s, flags), !spawns || !off; got != want {
					t.Errorf("%s, spawn %v: clone of %#x is allowed: %v, want %v", arch, !off, flags, got, want)
				}
				if cloned(s, flags|unix.CLONE_NEWUSER) {
					t.Errorf("%s, spawn %v: clone of %#x may make a namespace", arch, !off, flags)
				}
			}
		}
	}
}

// cloned is what the rules for clone say of its flags: one of them allows it and none refuses it.
func cloned(s *specs.LinuxSeccomp, flags uint64) bool {
	allowed := false
	for _, r := range s.Syscalls {
		if len(r.Names) != 1 || r.Names[0] != "clone" || flags&r.Args[0].Value != r.Args[0].ValueTwo {
			continue
		}
		if r.Action != specs.ActAllow {
			return false
		}
		allowed = true
	}
	return allowed
}
