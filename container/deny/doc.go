// Package deny holds files.deny where the masks that the sandbox was made with cannot: where there was nothing to be masked, and where
// somebody outside has removed or replaced what a mask was on. It owns what each exec looks at (Open), what it covers (Found.Cover) and what is
// moved aside in the end (Found.MoveAppeared). It imports of ours fault, container/lookup, forkexec and rootfs.
//
// The mount of a mask goes with the file under it, so an exec looks at every denied path when it starts: by descriptors below its grant, through
// no link. What is there without its mask is covered for that exec. What was not there and is when the exec has ended was made by the
// program or beside it: it is renamed within its directory, which has been open since before the program started. An exec of the short way does
// the same look in C (forkexec/absent.c), and Restore takes over what that has found.
package deny
