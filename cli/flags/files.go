package flags

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// maxInput is the maximum size of a policy, a key or a signature, in bytes.
const maxInput = 4 << 20

// ReadFile reads a file that the command line or a policy names. It opens only regular files, because a program may have written in
// the directory. The exception is a pipe of the caller, as a shell makes it for <(...).
func ReadFile(name string) ([]byte, error) {
	f, err := hostfs.OpenRegular(name)
	if errors.Is(err, hostfs.ErrNotRegular) && OwnDescriptor(name) {
		f, err = os.Open(name)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxInput+1))
	if err == nil && len(data) > maxInput {
		err = fmt.Errorf("read %q: larger than %d bytes", name, maxInput)
	}
	return data, err
}

// OwnDescriptor reports whether a name is one of the caller's open files.
func OwnDescriptor(name string) bool {
	return name == "/dev/stdin" || strings.HasPrefix(name, "/dev/fd/") || strings.HasPrefix(name, "/proc/self/fd/")
}
