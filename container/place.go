package container

import (
	"golang.org/x/sys/unix"
)

// ShowsDir says whether a directory of the host is inside under its own name: the same directory, and not another one there.
func (sb *Sandbox) ShowsDir(dir string) bool {
	var outside, there unix.Stat_t
	if unix.Stat(dir, &outside) != nil {
		return false
	}
	in, err := sb.inside()
	if err != nil {
		return false
	}
	defer unix.Close(in.root)
	f, err := in.open(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Fstat(int(f.Fd()), &there) == nil && there.Dev == outside.Dev && there.Ino == outside.Ino
}
