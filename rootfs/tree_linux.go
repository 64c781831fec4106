package rootfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// maxReadFile is the most that the host's Tree reads of a file, in bytes. All it is for are small configuration files.
const maxReadFile = 1 << 20

// HostTree is the file tree of the machine, as this process sees it. Its mounts are those of the time of the call.
func HostTree() (Tree, error) { return hostTreeOf(nil) }

// TracedTree is the same, with a trace of what it is asked.
func TracedTree() (Tree, *Trace, error) {
	trace := &Trace{facts: map[question]fact{}}
	tree, err := hostTreeOf(trace)
	return tree, trace, err
}

func hostTreeOf(trace *Trace) (Tree, error) {
	data, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list host mounts: %w", err)
	}
	mounts, remote := parseMounts(string(data))
	plain := hostTree{mounts: mounts, servers: &servers{targets: remote, silent: map[string]bool{}}, trace: trace}
	if trace != nil {
		trace.mounts = string(data)
	}
	t := plain
	t.data = inBackground(func() []datum { return programData(plain) })
	return t, nil
}

type hostTree struct {
	mounts  []HostMount
	servers *servers
	data    func() []datum
	trace   *Trace // nil: none
}

// note has the trace remember what is at a path.
func (t hostTree) note(how asked, p string) {
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

// programData is what a look at the host has found that began when the tree was made: meanwhile there is other work to do.
func (t hostTree) programData() []datum { return t.data() }

// inBackground begins to work, and returns a function that waits for the result.
func inBackground[T any](work func() T) func() T {
	done := make(chan struct{})
	var result T
	go func() {
		defer close(done)
		result = work()
	}()
	return func() T {
		<-done
		return result
	}
}

func (t hostTree) Lstat(p string) (Info, error) {
	t.note(askedStat, p)
	return ask(t.servers, p, func() (Info, error) { return lstat(p) })
}

func (t hostTree) Readlink(p string) (string, error) {
	t.note(askedLink, p)
	text, err := ask(t.servers, p, func() (string, error) { return os.Readlink(p) })
	return text, treeError(err)
}

func (t hostTree) ReadDir(p string) ([]string, error) {
	t.note(askedBehind, p)
	return ask(t.servers, p, func() ([]string, error) { return some(p, -1, 0) })
}

// ReadFile reads a regular file, and opens nothing else.
func (t hostTree) ReadFile(p string) ([]byte, error) {
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
func (t hostTree) Open(p string) (File, error) {
	f, err := ask(t.servers, p, func() (*os.File, error) { return openRegular(p, syscall.O_NOFOLLOW) })
	if err != nil {
		return nil, treeError(err)
	}
	return f, nil
}

// MountFlags says what the file system at a path refuses, whatever a view says.
func (t hostTree) MountFlags(p string) (readOnly, noExec bool) {
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

// HasACL says whether more than its mode decides who may use a file.
func (t hostTree) HasACL(p string) bool {
	n, err := ask(t.servers, p, func() (int, error) { return syscall.Getxattr(p, "system.posix_acl_access", nil) })
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

// parseMounts takes the first five fields of each line of /proc/self/mountinfo, and lists the mount points of file systems that may not answer.
func parseMounts(mountinfo string) (list []HostMount, remote []string) {
	const wanted = 6
	for line := range strings.Lines(mountinfo) {
		f := strings.SplitN(line, " ", wanted)
		if len(f) < wanted-1 {
			continue
		}
		id, _ := strconv.Atoi(f[0]) // the kernel writes numbers
		up, _ := strconv.Atoi(f[1])
		m := HostMount{id, up, f[2], Unescape(f[3]), Unescape(f[4])}
		list = append(list, m)
		_, kind, found := strings.Cut(line, " - ")
		kind, _, _ = strings.Cut(kind, " ")
		if found && m.Target != "/" && MayBeSilent(kind) {
			remote = append(remote, m.Target)
		}
	}
	return list, remote
}

// Unescape undoes what the kernel does in mountinfo to space, tab, newline and backslash in a path: "\040".
func Unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
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
