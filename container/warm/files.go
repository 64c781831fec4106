package warm

import (
	"fmt"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// What an interpreter has read must be what an interpreter would read that is started now. Programs of the sandbox cannot change it: no file, no
// directory on the way to it and no place where a file of more weight could be lies on a writable mount, nor in what a writable mount shows under
// another name. So what the interpreter says of itself is true, since only its own files were run. Others can change it: each file is compared.

// stamp says which file was at a path, and in which state; the zero is none.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

// seen are the stamps of paths.
type seen map[string]stamp

// settled is how long before an interpreter's start a file must have been changed last: the kernel's times are coarse.
const settled = 50 * time.Millisecond

func stampOf(in lookup.Root, name string) (stamp, error) {
	f, err := in.Open(name, unix.O_PATH)
	if lookup.Absent(err) {
		return stamp{}, nil
	}
	if err != nil {
		return stamp{}, err
	}
	defer f.Close()
	return stampOfFile(f)
}

func stampOfFile(f *os.File) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return stamp{}, err
	}
	return stamp{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}, nil
}

// look makes the stamps of all that an interpreter has read which was started at a time. The error says why one cannot be relied on.
func look(in lookup.Root, there []hostfs.Mount, program string, paths []string, started time.Time) (seen, error) {
	hops, err := onTheWay(in, program)
	if err != nil {
		return nil, err
	}
	all := seen{}
	for _, name := range append(hops, paths...) {
		name = path.Clean(name)
		if !path.IsAbs(name) {
			return nil, fmt.Errorf("%q is not absolute", name)
		}
		if _, known := all[name]; known {
			continue
		}
		s, err := stampOf(in, name)
		if err != nil {
			return nil, err
		}
		if err := fixed(in, there, name); err != nil {
			return nil, err
		}
		if time.Unix(s.ctime.Unix()).After(started.Add(-settled)) {
			return nil, fmt.Errorf("%q was changed just now", name)
		}
		all[name] = s
	}
	return all, nil
}

// onTheWay are the links that lead to a program, each with the directories where an interpreter looks what environment it belongs to.
func onTheWay(in lookup.Root, program string) ([]string, error) {
	const most = 40 // as the kernel
	var list []string
	for range most {
		list = append(list, program, path.Dir(program), path.Dir(path.Dir(program)))
		to, err := link(in, program)
		if err != nil || to == "" {
			return list, err
		}
		program = to
	}
	return nil, unix.ELOOP
}

// link is where a link leads; "" for anything else.
func link(in lookup.Root, name string) (string, error) {
	f, err := in.Open(name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", err
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(f.Fd()), "", buf)
	if err != nil {
		return "", err
	}
	to := string(buf[:n])
	if !path.IsAbs(to) {
		to = path.Join(path.Dir(name), to)
	}
	return to, nil
}

// fixed fails where a program could change what is at a path. Where nothing is, the directory counts that it would be in.
func fixed(in lookup.Root, there []hostfs.Mount, name string) error {
	at := name
	f, err := in.Open(at, unix.O_PATH)
	for lookup.Absent(err) && at != "/" {
		at = path.Dir(at)
		f, err = in.Open(at, unix.O_PATH)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return err
	}
	if fs.Flags&unix.ST_RDONLY == 0 {
		return fmt.Errorf("%q lies where programs could write", name)
	}
	l, err := procfs.LocationOf(f, there)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(there, func(m hostfs.Mount) bool { return m.Writable && l.Within(m.Location) }); i >= 0 {
		return fmt.Errorf("%q can be written by the name of %q", name, there[i].Target)
	}
	return nil
}

// same reports whether all is as it was.
func (s seen) same(in lookup.Root) bool {
	for name, was := range s {
		if is, err := stampOf(in, name); err != nil || is != was {
			return false
		}
	}
	return true
}
