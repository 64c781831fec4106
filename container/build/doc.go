// Package build makes of a Plan what its sandbox's programs see. It owns the flat list of steps (View, Network), which
// forkexec/build.c carries out inside; the copies of the host's mounts that a privileged launcher hands in (OpenTrees); the search
// through grants for files that need a mount of their own (search.go); the mounts that each exec has for itself (execmounts.go); and
// the files that show a program its limits (limitsview.go). It decides nothing: the Plan says what is mounted where.
// It imports of ours cgroup, diagnose, fault, guard, idmap, procfs, forkexec, rootfs and spec.
package build
