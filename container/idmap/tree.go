package idmap

import (
	"fmt"
	"os"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// OpenTree takes a copy of what is mounted at a path. No part of the path is followed if it is a link; see forkexec/build.c.
func OpenTree(m specs.Mount) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	at, err := unix.Openat2(unix.AT_FDCWD, m.Source, &how)
	if err != nil {
		return nil, err
	}
	defer unix.Close(at)
	fd, err := unix.OpenTree(at, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	if err != nil {
		return nil, err
	}
	attr := unix.MountAttr{Attr_set: BindAttributes(m.Options), Propagation: unix.MS_PRIVATE}
	if err := protect(fd, &attr, m); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), m.Source), nil
}

// protect sets a tree's attributes and its map of ids, all at once or none.
func protect(tree int, attr *unix.MountAttr, m specs.Mount) error {
	if len(m.UIDMappings) > 0 {
		ns, err := userNamespaces.get(m.UIDMappings, m.GIDMappings)
		if err != nil {
			return fmt.Errorf("make a user namespace with the ids of grants: %w", err)
		}
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(ns.Fd())
	}
	err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr)
	if err != nil && len(m.UIDMappings) > 0 {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return err
}

// BindAttributes are what the options of a bind set on it and on all that is mounted below. They only ever add.
func BindAttributes(options []string) uint64 {
	known := map[string]uint64{
		"ro": unix.MOUNT_ATTR_RDONLY, "nosuid": unix.MOUNT_ATTR_NOSUID, "nodev": unix.MOUNT_ATTR_NODEV,
		"noexec": unix.MOUNT_ATTR_NOEXEC,
	}
	var set uint64
	for _, o := range options {
		// "ro" or "rro": what is set on a file is set on all below it.
		set |= known[o] | known[strings.TrimPrefix(o, "r")]
	}
	return set
}
