package idmap

import (
	"fmt"
	"os"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Grant is a directory or file of the host of which a copy is mounted.
type Grant struct {
	Source     string
	Attributes uint64                 // MOUNT_ATTR constants, for all that is mounted there and below; they only ever add
	UIDs, GIDs []specs.LinuxIDMapping // empty: it is not idmapped
}

// Attributes are set on a bind of the view, and on all that is mounted below it.
func Attributes(m rootfs.Mount) uint64 {
	set := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
	if spec.ReadOnly(m) {
		set |= unix.MOUNT_ATTR_RDONLY
	}
	if spec.NoExec(m) {
		set |= unix.MOUNT_ATTR_NOEXEC
	}
	return set
}

// openTree takes a copy of what is mounted at a path and below it.
func openTree(m Grant) (*os.File, error) { return clone(m, unix.AT_RECURSIVE) }

// clone takes a copy of what is mounted at a path. No part of the path is followed if it is a link; see forkexec/build.c.
func clone(m Grant, recursive uint) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	at, err := unix.Openat2(unix.AT_FDCWD, m.Source, &how)
	if err != nil {
		return nil, err
	}
	defer unix.Close(at)
	fd, err := unix.OpenTree(at, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|recursive)
	if err != nil {
		return nil, err
	}
	attr := unix.MountAttr{Attr_set: m.Attributes, Propagation: unix.MS_PRIVATE}
	if err := protect(fd, &attr, m); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), m.Source), nil
}

// protect sets a tree's attributes and its map of ids, all at once or none.
func protect(tree int, attr *unix.MountAttr, m Grant) error {
	if len(m.UIDs) > 0 {
		ns, err := userNamespaces.get(m.UIDs, m.GIDs)
		if err != nil {
			return fmt.Errorf("make a user namespace with the ids of grants: %w", err)
		}
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(ns.Fd())
	}
	err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr)
	if err != nil && len(m.UIDs) > 0 {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return err
}
