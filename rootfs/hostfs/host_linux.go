package hostfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// maxReadFile is the most that the host's Tree reads of a file, in bytes. All it is for are small configuration files.
const maxReadFile = 1 << 20

// Host is the file tree of the machine, as this process sees it.
type Host struct {
	mounts  []Mount
	servers *servers
	trace   *Trace // nil: none
}

// OpenHost returns the machine's tree. Its mounts are those of the time of the call.
func OpenHost() (Host, error) {
	mounts, err := OwnMounts()
	if err != nil {
		return Host{}, err
	}
	var remote []string
	for _, m := range mounts {
		if m.Target != "/" && m.Kind != "" && MayBeSilent(m.Kind) {
			remote = append(remote, m.Target)
		}
	}
	return Host{mounts: mounts, servers: &servers{targets: remote, silent: map[string]bool{}}}, nil
}

// OpenTraced is OpenHost, with a trace of what the tree is asked.
func OpenTraced() (Host, *Trace, error) {
	trace := &Trace{facts: map[question]fact{}}
	mounts, err := os.ReadFile(ownMountinfo)
	if err != nil {
		return Host{}, nil, fmt.Errorf("list host mounts: %w", err)
	}
	trace.mounts = string(mounts)
	h, err := OpenHost()
	h.trace = trace
	return h, trace, err
}

// note has the trace remember what is at a path.
func (t Host) note(how asked, p string) {
	switch {
	case t.trace == nil:
	case t.servers.of(p) != "":
		t.trace.mu.Lock()
		t.trace.silent = true
		t.trace.mu.Unlock()
	default:
		t.trace.note(how, p)
	}
}

// Lstat implements Tree.
func (t Host) Lstat(p string) (Info, error) {
	t.note(askedStat, p)
	return ask(t.servers, p, func() (Info, error) { return lstat(p) })
}

// Readlink implements Tree.
func (t Host) Readlink(p string) (string, error) {
	t.note(askedLink, p)
	text, err := ask(t.servers, p, func() (string, error) { return os.Readlink(p) })
	return text, treeError(err)
}

// ReadDir implements Tree. It follows a link at the end.
func (t Host) ReadDir(p string) ([]string, error) {
	t.note(askedBehind, p)
	return ask(t.servers, p, func() ([]string, error) { return some(p, -1, 0) })
}

// ReadFile reads a regular file, and opens nothing else.
func (t Host) ReadFile(p string) ([]byte, error) {
	t.note(askedContent, p)
	return ask(t.servers, p, func() ([]byte, error) { return readFile(p) })
}

func readFile(p string) ([]byte, error) {
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
func (t Host) Open(p string) (File, error) {
	f, err := ask(t.servers, p, func() (*os.File, error) { return openRegular(p, syscall.O_NOFOLLOW) })
	if err != nil {
		return nil, treeError(err)
	}
	return f, nil
}

// MountFlags says what the file system at a path refuses, whatever a view says.
func (t Host) MountFlags(p string) (readOnly, noExec bool) {
	const stRdonly, stNoexec = 1, 8 // of statfs(2)
	st, err := ask(t.servers, p, func() (st syscall.Statfs_t, err error) {
		err = syscall.Statfs(p, &st)
		return st, err
	})
	if err != nil {
		return false, false
	}
	return st.Flags&stRdonly != 0, st.Flags&stNoexec != 0
}

// HasACL reports whether more than its mode decides who may use a file.
func (t Host) HasACL(p string) bool {
	n, err := ask(t.servers, p, func() (int, error) { return syscall.Getxattr(p, "system.posix_acl_access", nil) })
	return err == nil && n > 0
}

// Mounts are those of the time when the tree was opened.
func (t Host) Mounts() []Mount { return t.mounts }

// treeError makes a path below a file one that does not exist.
func treeError(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}
