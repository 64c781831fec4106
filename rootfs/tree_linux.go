package rootfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// maxReadFile is the most that the host's Tree reads of a file, in bytes. All it is for are small configuration files.
const maxReadFile = 1 << 20

// HostTree is the file tree of the machine, as this process sees it. Its mounts are those of the time of the call.
func HostTree() (Tree, error) {
	data, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list host mounts: %w", err)
	}
	return hostTree{parseMounts(string(data))}, nil
}

type hostTree struct{ mounts []HostMount }

func (hostTree) Lstat(p string) (Info, error) {
	fi, err := os.Lstat(p)
	if err != nil {
		return Info{}, treeError(err)
	}
	info := Info{Mode: fi.Mode(), Size: fi.Size()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		// The types of these fields differ between architectures.
		info.UID, info.GID = int(st.Uid), int(st.Gid)
		info.Dev, info.Ino, info.Nlink = uint64(st.Dev), st.Ino, uint64(st.Nlink)
	}
	return info, nil
}

func (hostTree) Readlink(p string) (string, error) {
	text, err := os.Readlink(p)
	return text, treeError(err)
}

func (t hostTree) ReadDir(p string) ([]string, error) { return t.Some(p, -1) }

// Some lists n of a directory's names, or all, sorted. It does not read a large directory to its end.
func (hostTree) Some(p string, n int) ([]string, error) {
	fd, err := openDir(p)
	if err != nil {
		return nil, treeError(&os.PathError{Op: "open", Path: p, Err: err})
	}
	defer syscall.Close(fd) //nolint:errcheck // it was only read
	var names []string
	buf := make([]byte, 8<<10)
	for n < 0 || len(names) < n {
		got, err := syscall.ReadDirent(fd, buf)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return nil, treeError(&os.PathError{Op: "read", Path: p, Err: err})
		}
		if got <= 0 {
			break
		}
		for rest := buf[:got]; len(rest) > 0; {
			used := 0
			used, _, names = syscall.ParseDirent(rest, -1, names)
			rest = rest[used:]
		}
	}
	slices.Sort(names)
	if n >= 0 {
		names = names[:min(len(names), n)]
	}
	return names, nil
}

// openDir takes a third of the calls that os.Open does, which asks whether a file can be polled.
func openDir(p string) (fd int, err error) {
	for {
		fd, err = syscall.Open(p, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
		if !errors.Is(err, syscall.EINTR) {
			return fd, err
		}
	}
}

// ReadFile reads a regular file, and opens nothing else.
func (hostTree) ReadFile(p string) ([]byte, error) {
	f, err := openRegular(p, syscall.O_NOFOLLOW)
	if err != nil {
		return nil, treeError(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, treeError(err)
	}
	data := bytes.NewBuffer(make([]byte, 0, min(max(info.Size(), 0), maxReadFile)+bytes.MinRead))
	if _, err := data.ReadFrom(io.LimitReader(f, maxReadFile+1)); err != nil {
		return nil, err
	}
	if data.Len() > maxReadFile {
		return nil, fmt.Errorf("read %q: larger than %d bytes", p, maxReadFile)
	}
	return data.Bytes(), nil
}

// Open opens a regular file for Explainer.Program, in the same way.
func (hostTree) Open(p string) (File, error) {
	f, err := openRegular(p, syscall.O_NOFOLLOW)
	if err != nil {
		return nil, treeError(err)
	}
	return f, nil
}

// MountFlags says what the file system at a path refuses, whatever a view says.
func (hostTree) MountFlags(p string) (readOnly, noExec bool) {
	const stRdonly, stNoexec = 1, 8 // of statfs(2)
	var st syscall.Statfs_t
	if syscall.Statfs(p, &st) != nil {
		return false, false
	}
	return st.Flags&stRdonly != 0, st.Flags&stNoexec != 0
}

// HasACL says whether more than its mode decides who may use a file.
func (hostTree) HasACL(p string) bool {
	n, err := syscall.Getxattr(p, "system.posix_acl_access", nil)
	return err == nil && n > 0
}

func (t hostTree) Mounts() []HostMount { return t.mounts }

// treeError makes a path below a file one that does not exist.
func treeError(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

// parseMounts takes the first five fields of each line of /proc/self/mountinfo.
func parseMounts(mountinfo string) []HostMount {
	const wanted = 6
	var list []HostMount
	for line := range strings.Lines(mountinfo) {
		f := strings.SplitN(line, " ", wanted)
		if len(f) < wanted-1 {
			continue
		}
		id, _ := strconv.Atoi(f[0]) // the kernel writes numbers
		up, _ := strconv.Atoi(f[1])
		list = append(list, HostMount{id, up, f[2], unescapeOctal(f[3]), unescapeOctal(f[4])})
	}
	return list
}

// unescapeOctal undoes what the kernel does to space, tab, newline and backslash in a path: "\040".
func unescapeOctal(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
