// Package idmap owns the ids that programs of the machine's root get for themselves, and the copies of mounts that are handed
// into a sandbox: whether their ids can be exchanged is found out by doing it to such a copy, and what below a grant is left out (below.go). It imports of ours forkexec, procfs,
// rootfs and spec.
package idmap
