// Package check tries the isolation of a sandbox before its process 1 is let go. It owns the making of the facts; what has to
// hold is decided by spec, and what the facts mean by hooks.
//
// New looks at the host before anything of the sandbox is mounted. Run starts a program as always, which at its last step makes a
// flat list of system calls into our memory and ends (calls.go, inside.go, id.go, names.go); some of the calls are also made when
// it enters its user namespace, and right before the filter. The same is looked at from outside, before and after (outside.go).
// read.go makes facts of the answers. Every check needs a positive control, so that silence is never taken for isolation.
//
// It imports of ours fault, procfs, sabotage, forkexec, hooks, rootfs and spec, and knows of a sandbox what the type Sandbox says.
package check
