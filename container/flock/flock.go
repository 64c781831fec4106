// Package flock owns the locks of flock(2), by which the files of a sandbox say who is alive: a process holds one for as long as it lives,
// and a process that can take it knows that the first one has ended. It imports none of ours.
package flock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Lock locks a file as flock(2) does, and begins again where a signal has interrupted it.
func Lock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
