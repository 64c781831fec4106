// Package cgroup owns the control groups of a sandbox: which kind the caller can have on this machine, how a sandbox's groups
// are made, limited, read back and removed. Groups of single execs below them are made by forkexec. It imports of ours only
// procfs, trust, forkexec, rootfs and spec.
//
// There are three rungs, tried in this order, and the first with the most controllers is taken:
//
//   - Version 2 that was delegated to the caller (unified.go). There a group that gives controllers to its children holds no
//     process. So the sandbox's group is made in the nearest one above us that can give, and its own processes are in groups
//     below it.
//   - A scope (scope.go). Where systemd manages the tree it makes a group for us, called a scope, around process 1, and changes
//     nothing below that. Users have a systemd of their own to ask.
//   - Version 1 (legacy.go), which has a hierarchy for each controller, or for some of them together. The sandbox gets a directory
//     in each, below our own, so that what limits us limits it too.
//
// Every group is noted by the caller before it is made, and nothing is ever removed that has not the name of a sandbox's group.
// A limit that was written is read back, because the kernel may take less than was written without a word.
package cgroup
