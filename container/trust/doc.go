// Package trust knows what the launcher believes (its binary, policies, keys, state directories) and where on the host that is, and
// refuses what would let a program change or see it. It owns the locations (NewGround, for spec, which compares each mount of a view
// with them), the scan for other sandboxes that run (scan.go), the check that no running sandbox can write a state directory
// (exposed.go), what of the host a sandbox shows (shown.go), and a walk along a path of the host on which each link can be refused
// (walk.go).
//
// A state directory that a grant holds is masked. The kernel drops the mask when somebody outside removes or moves the directory,
// and a program that runs then can make a directory of the same name: all that is in it would be the program's. So no sandbox is
// made in a state directory that a program can write. Nothing that a program may write is believed: locations are compared by file
// system and path within it, not by name.
//
// It imports of ours fault, procfs, forkexec, rootfs and spec.
package trust
