// Package relayproc is the process of a sandbox's relay, and what others know of it. It owns the start of that process and its system call
// filter, the counts and events of what it has let through, the look whether it runs (InfoOf, Alive, Counts), and the lines about refused hosts
// on a program's standard error (Refusals). What a relay does with connections is package relay's. It imports of ours container/cgroup,
// container/diagnose, fault, container/flock, container/journal, container/procfs, container/recording, container/selfexec, forkexec,
// record, relay and spec.
//
// A sandbox whose policy has a network has one relay: this binary started again, outside, in a session of its own, without privilege
// (forkexec.c) and with a filter of its own (relayfilter.go). Start makes the sockets inside and starts it while the sandbox is built, Serve lets
// it begin once the sandbox has been checked, and it ends with process 1. It holds a lock in the sandbox's directory for as long as it lives,
// and writes there the counts and the events that commands read. Nothing but these files joins it to them.
package relayproc
