// Package launch starts process 1 of a sandbox, and is the only importer of libcontainer. libcontainer makes the namespaces and the maps of
// users; the mounts are package build's to make. Process 1 ends with its creator until the creator closes its socket, because the sandbox is
// complete (forkexec/stub.c).
//
// It imports of ours build, diagnose, fault, forkexec and spec.
package launch
