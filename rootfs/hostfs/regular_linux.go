package hostfs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// ErrNotRegular is what OpenRegular says of a directory, FIFO, socket or device.
var ErrNotRegular = errors.New("not a regular file")

const (
	oPath    = 0x200000 // O_PATH
	oPrivate = syscall.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY | syscall.O_CLOEXEC
)

// OpenRegular opens a regular file to read it, and nothing else. To open a FIFO lets its writer go on, and to open a
// device may make a tape rewind or a terminal the launcher's own, even if not a byte is read; so the file is looked at first,
// by a descriptor that opens nothing, and what was looked at is what is opened.
func OpenRegular(path string) (*os.File, error) { return openRegular(path, 0) }

func openRegular(path string, flags int) (*os.File, error) {
	at, err := retry(func() (int, error) { return syscall.Open(path, oPath|syscall.O_CLOEXEC|flags, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = syscall.Close(at) }()
	var st syscall.Stat_t
	if err := syscall.Fstat(at, &st); err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return nil, fmt.Errorf("open %q: %w", path, ErrNotRegular)
	}
	fd, err := retry(func() (int, error) { return syscall.Open("/proc/self/fd/"+strconv.Itoa(at), oPrivate, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func retry(open func() (int, error)) (int, error) {
	for {
		fd, err := open()
		if !errors.Is(err, syscall.EINTR) {
			return fd, err
		}
	}
}
