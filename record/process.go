package record

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Process is the kernel's description of a process.
type Process struct {
	Namespaces   map[string]Namespace `json:"namespaces"` // by type, such as "user", "mnt", "net"
	UID          []int                `json:"uid"`        // real, effective, saved and of the file system, as the reader sees them
	GID          []int                `json:"gid"`
	Groups       []int                `json:"groups"`
	Capabilities map[string]string    `json:"capabilities"` // "inheritable", "permitted", "effective", "bounding", "ambient": in hex
	NoNewPrivs   bool                 `json:"no_new_privs"`
	Seccomp      int                  `json:"seccomp"` // mode: 0 none, 1 strict, 2 filter
}

// Namespace has the inode of a process's namespace, and that of the reader's. If they are equal, the two share the namespace.
type Namespace struct {
	Inode uint64 `json:"inode"`
	Host  uint64 `json:"host"`
}

// namespaces are the types that ReadProcess looks at, if the kernel has them.
func namespaces() []string {
	return []string{"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"}
}

// ReadProcess reads the kernel's description of a process from its directory in /proc. An open directory stays with its process,
// even if the kernel gives the pid to another one.
func ReadProcess(proc *os.File) (*Process, error) {
	// Not self, which is the first thread: libcontainer may have left that thread in a namespace of a sandbox.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := &Process{Namespaces: map[string]Namespace{}}
	dir := fmt.Sprintf("/proc/self/fd/%d", proc.Fd())
	for _, name := range namespaces() {
		host, err := inode(filepath.Join("/proc/thread-self/ns", name))
		if err != nil {
			continue // this kernel does not have the type
		}
		own, err := inode(filepath.Join(dir, "ns", name))
		if err != nil {
			return nil, fmt.Errorf("read namespace %s: %w", name, err)
		}
		p.Namespaces[name] = Namespace{own, host}
	}
	data, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return nil, fmt.Errorf("read status of process: %w", err)
	}
	return p, p.status(string(data))
}

func inode(path string) (uint64, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return 0, err
	}
	return st.Ino, nil
}

// status reads the needed lines of /proc/PID/status. A missing line is an error, because it must not look like zero.
func (p *Process) status(text string) error {
	f := fields{values: map[string]string{}}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			f.values[name] = strings.TrimSpace(value)
		}
	}
	p.UID, p.GID, p.Groups = f.ints("Uid"), f.ints("Gid"), f.ints("Groups")
	p.NoNewPrivs, p.Seccomp = f.one("NoNewPrivs") == 1, f.one("Seccomp")
	p.Capabilities = map[string]string{
		"inheritable": f.text("CapInh"), "permitted": f.text("CapPrm"), "effective": f.text("CapEff"), "bounding": f.text("CapBnd"),
		"ambient": f.text("CapAmb"),
	}
	if f.err != nil {
		return fmt.Errorf("read status of process: %w", f.err)
	}
	return nil
}

// fields are the lines by name, and the first error about a line that was needed.
type fields struct {
	values map[string]string
	err    error
}

func (f *fields) text(name string) string {
	value, there := f.values[name]
	if !there {
		f.err = fmt.Errorf("%s is missing", name)
	}
	return value
}

func (f *fields) ints(name string) []int {
	list := []int{}
	for word := range strings.FieldsSeq(f.text(name)) {
		n, err := strconv.Atoi(word)
		if err != nil {
			f.err = fmt.Errorf("%s: %w", name, err)
		}
		list = append(list, n)
	}
	return list
}

func (f *fields) one(name string) int {
	list := f.ints(name)
	if len(list) != 1 {
		f.err = fmt.Errorf("%s is %q", name, f.values[name])
		return 0
	}
	return list[0]
}
