package record

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Process is what the kernel tells of a process.
type Process struct {
	Namespaces   map[string]Namespace `json:"namespaces"` // by type, such as "user", "mnt", "net"
	UID          []int                `json:"uid"`        // real, effective, saved and of the file system, as the reader sees them
	GID          []int                `json:"gid"`
	Groups       []int                `json:"groups"`
	Capabilities map[string]string    `json:"capabilities"` // "inheritable", "permitted", "effective", "bounding", "ambient": in hex
	NoNewPrivs   bool                 `json:"no_new_privs"`
	Seccomp      int                  `json:"seccomp"` // its mode: 0 none, 1 strict, 2 filter
}

// Namespace is the number of one, and of the one that the reader of it is in. Where they are equal nothing is apart.
type Namespace struct {
	Inode uint64 `json:"inode"`
	Host  uint64 `json:"host"`
}

// namespaces are looked at where the kernel has them.
func namespaces() []string {
	return []string{"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"}
}

// ReadProcess asks the kernel about a process by its directory in /proc, which stays that process' own even when its
// number is given away.
func ReadProcess(proc *os.File) (*Process, error) {
	p := &Process{Namespaces: map[string]Namespace{}, Capabilities: map[string]string{}}
	dir := fmt.Sprintf("/proc/self/fd/%d", proc.Fd())
	for _, name := range namespaces() {
		host, err := inode(filepath.Join("/proc/self/ns", name))
		if err != nil {
			continue // this kernel has none
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

// status reads the lines of /proc/PID/status that matter. One that is missing must not look like a zero.
func (p *Process) status(text string) error {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = strings.TrimSpace(value)
		}
	}
	var err error
	ints := func(name string) []int {
		list := []int{}
		value, there := fields[name]
		for _, word := range strings.Fields(value) {
			n, e := strconv.Atoi(word)
			there = there && e == nil
			list = append(list, n)
		}
		if !there && err == nil {
			err = fmt.Errorf("read status of process: %s is missing", name)
		}
		return list
	}
	one := func(name string) int {
		list := ints(name)
		if len(list) != 1 {
			if err == nil {
				err = fmt.Errorf("read status of process: %s is %q", name, fields[name])
			}
			return 0
		}
		return list[0]
	}
	p.UID, p.GID, p.Groups = ints("Uid"), ints("Gid"), ints("Groups")
	p.NoNewPrivs, p.Seccomp = one("NoNewPrivs") == 1, one("Seccomp")
	for name, field := range map[string]string{
		"inheritable": "CapInh", "permitted": "CapPrm", "effective": "CapEff", "bounding": "CapBnd", "ambient": "CapAmb",
	} {
		value, there := fields[field]
		if !there && err == nil {
			err = fmt.Errorf("read status of process: %s is missing", field)
		}
		p.Capabilities[name] = value
	}
	return err
}
