package procfs

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/spec"
)

// KernelVersion is the version of the running kernel.
func KernelVersion() (spec.Kernel, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return spec.Kernel{}, fmt.Errorf("read kernel version: %w", err)
	}
	var k spec.Kernel
	release := unix.ByteSliceToString(u.Release[:])
	if n, _ := fmt.Sscanf(release, "%d.%d", &k.Major, &k.Minor); n != 2 {
		return k, fmt.Errorf("read kernel version: unknown form %q", release)
	}
	return k, nil
}

// FSName is what a kind of file system is called, by its magic number in statfs.
func FSName(magic int64) string {
	names := map[int64]string{
		unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs", unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs",
		unix.BTRFS_SUPER_MAGIC: "btrfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.NFS_SUPER_MAGIC: "nfs", unix.SMB2_SUPER_MAGIC: "cifs", unix.CIFS_SUPER_MAGIC: "cifs",
		unix.FUSE_SUPER_MAGIC: "fuse", unix.F2FS_SUPER_MAGIC: "f2fs", 0x2fc12fc1: "zfs",
	}
	if name, ok := names[magic]; ok {
		return name
	}
	return fmt.Sprintf("file system %#x", magic)
}
