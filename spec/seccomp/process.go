package seccomp

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// cloneNamespaces are the CLONE_NEW* flags of clone(2). CLONE_NEWTIME is not among them: clone reads its bit as a part
// of the exit signal, and only unshare and clone3, which are refused, know it.
const cloneNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// cloneRules allow clone unless it makes a namespace.
func cloneRules() []specs.LinuxSyscall {
	test := func(o outcome, mask, value uint64) specs.LinuxSyscall {
		return o.rule([]string{"clone"}, masked(0, mask, value))
	}
	rules := []specs.LinuxSyscall{test(allowIt(), cloneNamespaces, 0)}
	for left := uint64(cloneNamespaces); left != 0; left &= left - 1 {
		bit := left & -left
		rules = append(rules, test(errno(unix.EPERM), bit, bit))
	}
	return rules
}
