// Package sabotage leaves a layer of isolation out, in builds for tests alone (-tags sabotage), to see that a check notices.
// Every other build has functions here that change nothing. It imports of ours only forkexec, hooks, rootfs and spec.
package sabotage
