// Package disk holds limits.disk: how much a sandbox has added to the host directories and files that it may write, in
// allocated blocks. It owns the walk over these trees (walk.go), the watch during an exec (watch.go), and what processes hold
// of files that have no name any more (held.go). It imports of ours only rootfs.
//
// There is no quota that an unprivileged caller could set, so this is a watch: the trees are walked, and between walks,
// which are dear, the free space of their file systems and the kernel's account of what was written tell whether another
// walk is needed. The program changes the trees under the walk and is hostile: no link is followed, no mount
// crossed, a directory is only ever reached through its parent's descriptor. What the program renames during a walk may be
// seen twice or not at all; too much counts only if two walks say so. What it has shut against us, or made too large to walk
// through, is as much as the file system has lost since the sandbox was made.
//
// Blocks that are promised but not placed yet (delayed allocation) count on ext4, xfs and btrfs at once: stat adds them.
// On zfs, f2fs and over a network they show late, seconds or until they are written out. xfs sets aside more than a
// growing file needs, up to twice its size; that is taken too until the file is closed. Compression and shared extents
// are not seen: a reflink counts in full.
package disk
