package procfs

import "golang.org/x/sys/unix"

// Landlock is the version of Landlock that this kernel has. The error is EOPNOTSUPP if it was turned off at boot.
func Landlock() (int, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(abi), nil
}
