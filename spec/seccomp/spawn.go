package seccomp

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// RefuseSpawn refuses every call that makes a process, if the policy has processes.spawn = false. Threads stay. It is EPERM and not the
// EAGAIN of a full process table, because bash waits and tries again on EAGAIN. That the program executes no other is not in the
// profile, because the runtime itself must execute the program: forkexec/once.c.
func RefuseSpawn(s *specs.LinuxSeccomp) {
	none := errno(unix.EPERM)
	makers := []string{"fork", "vfork"}
	refused := none.rule(nil)
	for i := range s.Syscalls {
		r := &s.Syscalls[i]
		for _, name := range makers {
			if at := slices.Index(r.Names, name); at >= 0 {
				r.Names = slices.Delete(r.Names, at, at+1)
				refused.Names = append(refused.Names, name)
			}
		}
		// clone without a namespace is allowed: from here on only with CLONE_THREAD.
		if slices.Equal(r.Names, []string{"clone"}) && r.Action == specs.ActAllow {
			r.Args = []specs.LinuxSeccompArg{masked(0, cloneNamespaces|unix.CLONE_THREAD, unix.CLONE_THREAD)}
		}
	}
	if len(refused.Names) > 0 { // arm64 has neither
		s.Syscalls = append(s.Syscalls, refused)
	}
	s.Syscalls = append(s.Syscalls, none.rule([]string{"clone"}, masked(0, unix.CLONE_THREAD, 0)))
}
