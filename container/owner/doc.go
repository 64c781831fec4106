// Package owner finds the process that a sandbox belongs to, and opens it. A sandbox ends with its owner: with the process that called
// create, and not with a wrapper that only ran the command on that one's behalf. A pid is never believed alone: start time and
// boot tell a process from a later one with its number. It imports of ours fault, forkexec and procfs.
package owner
