// Package chmod carries out the calls of programs that set the set-user-id or set-group-id bit.
//
// cp -p, tar -p, install and rsync set these bits together with the other bits of a mode. On a file that is on the host the mode
// would give the caller's rights to everybody who executes it. On a directory the set-group-id bit is harmless, and shared project
// trees need it: what is made in such a directory belongs to its group. A filter cannot tell a file from a directory, and cannot
// change a mode. So it asks (seccomp_unotify(2)): the launcher sets the mode, less what must not be set, with the rights of the
// program.
//
// With processes.userns it also mounts new file systems of a few kinds for programs: mount.go.
//
// It imports of ours forkexec, procfs and transfer.
package chmod
