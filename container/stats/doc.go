// Package stats says what runs in a sandbox and what that uses. It owns the list of processes (ps.go) and the Meter, which reads control
// groups where they count (stats.go), and /proc for the rest (stats_proc.go). It imports of ours container/cgroup, container/disk,
// container/lookup, container/owner, container/procfs, container/relayproc, container/result, forkexec and spec.
//
// The processes of a sandbox are those in PID namespaces nested in that of its process 1: each exec has one, in which the reaper is 1 and the
// program 2. Neither process 1 nor the reapers count. A Meter remembers its last look, for what is a rate. What it needs of the
// sandbox stands in the type Sandbox; it starts nothing and changes nothing.
package stats
