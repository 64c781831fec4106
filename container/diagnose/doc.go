// Package diagnose finds out why a sandbox cannot be made here: it tries each step that every sandbox takes by itself, looks at
// what surrounds the caller (a seccomp filter, a security module, settings of the kernel, capabilities that root lacks), and says
// which one command changes that. The errors of run and create and the rows of doctor are made of the same table, Needs. It
// also owns the hints for what the launcher itself has too little of (scarce.go). It imports of ours only fault, forkexec and procfs.
package diagnose
