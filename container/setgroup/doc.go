// Package setgroup carries out the calls of programs that set the set-group-id bit of a directory.
//
// Directories of a shared project tree have the set-group-id bit: what is made in them belongs to their group. chmod, cp, tar and
// git set that bit again together with other modes. On a file the same mode would give the caller's group to every user who executes
// the file, so the filter refuses it, and a filter cannot tell a file from a directory. Where a writable grant is such a tree
// the filter asks instead (seccomp_unotify(2)): the launcher carries the call out if it is for a directory of the program's own.
//
// It imports of ours forkexec and procfs.
package setgroup
