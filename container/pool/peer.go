package pool

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// peer is who asks, as the kernel describes it.
type peer struct {
	pid  int
	dir  *os.File // in /proc: stays this process' even when its pid is given away
	env  map[string]string
	cwd  string
	core uint64 // hard limit
}

// circumstances are what a plan depends on beside files, variables and the policy: two processes that have them in common are given the
// same sandbox by the same command line.
type circumstances struct {
	status     string    // ids, capabilities, filters
	namespaces [9]object // and the root directory
	exe        object
	groups     string // control groups
	label      string // of a security module
	files      uint64 // hard limit
	cpus       unix.CPUSet
}

// object is a file's number.
type object struct{ dev, ino uint64 }

// other names what of them is another.
func (c *circumstances) other(than *circumstances) error {
	for _, differs := range []struct {
		what string
		is   bool
	}{
		{"ids, capabilities or filters", c.status != than.status},
		{"namespaces or root directory", c.namespaces != than.namespaces},
		{"binary", c.exe != than.exe},
		{"control groups", c.groups != than.groups},
		{"label", c.label != than.label},
		{"limit of open files", c.files != than.files},
		{"processors", c.cpus != than.cpus},
	} {
		if differs.is {
			return fmt.Errorf("the caller's %s: not those of the pool", differs.what)
		}
	}
	return nil
}

// meet finds out who is at the other end of a connection.
func meet(conn *net.UnixConn) (p *peer, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	cerr := raw.Control(func(fd uintptr) { p, err = meetAt(int(fd)) })
	return p, errors.Join(err, cerr)
}

func meetAt(fd int) (*peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, err
	}
	if int(cred.Uid) != os.Geteuid() || cred.Pid <= 0 {
		return nil, errors.New("the caller is another user, or in another PID namespace")
	}
	dir, err := os.OpenFile(fmt.Sprintf("/proc/%d", cred.Pid), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	p := &peer{pid: int(cred.Pid), dir: dir}
	data, err := p.read("environ")
	if err == nil {
		p.env = environment(data)
		p.cwd, err = p.workingDir()
	}
	var limit unix.Rlimit
	if err == nil {
		err = unix.Prlimit(p.pid, unix.RLIMIT_CORE, nil, &limit)
	}
	p.core = limit.Max
	// Whose connection is open has not ended, so its number has not been given away: all that was read is its own.
	if err == nil && hungUp(fd) {
		err = unix.ESRCH
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return p, nil
}

func (p *peer) close() { p.dir.Close() }

// hungUp reports whether nobody is at the other end any more.
func hungUp(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(fds, 0)
	return err != nil || n > 0
}

func environment(data []byte) map[string]string {
	env := map[string]string{}
	for kv := range bytes.SplitSeq(data, []byte{0}) {
		if name, value, ok := strings.Cut(string(kv), "="); ok {
			env[name] = value
		}
	}
	return env
}

// circumstances reads a process' circumstances.
func (p *peer) circumstances() (c circumstances, err error) {
	status, err := p.read("status")
	if err != nil {
		return c, err
	}
	for line := range strings.Lines(string(status)) {
		name, _, _ := strings.Cut(line, ":")
		if strings.HasPrefix(name, "Cap") || slices.Contains([]string{"Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "Seccomp_filters"}, name) {
			c.status += line
		}
	}
	for i, name := range []string{"ns/user", "ns/mnt", "ns/pid", "ns/pid_for_children", "ns/net", "ns/ipc", "ns/uts", "ns/cgroup", "root"} {
		if c.namespaces[i], err = p.object(name); err != nil {
			return c, err
		}
	}
	if c.exe, err = p.object("exe"); err != nil {
		return c, err
	}
	groups, err := p.read("cgroup")
	if err != nil {
		return c, err
	}
	label, _ := p.read("attr/current") // there may be no such module
	c.groups, c.label = string(groups), string(label)
	var limit unix.Rlimit
	if err := unix.Prlimit(p.pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		return c, err
	}
	c.files = limit.Max
	return c, unix.SchedGetaffinity(p.pid, &c.cpus)
}

func (p *peer) read(name string) ([]byte, error) {
	fd, err := unix.Openat(int(p.dir.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	all := make([]byte, 0, 4<<10) // nearly always enough
	for {
		n, err := unix.Read(fd, all[len(all):cap(all)])
		if err != nil || n == 0 {
			return all, err
		}
		if all = all[:len(all)+n]; len(all) == cap(all) {
			all = slices.Grow(all, len(all))
		}
	}
}

// workingDir is what os.Getwd gives it: a name that its caller has given it, if that leads there.
func (p *peer) workingDir() (string, error) {
	at, err := p.object("cwd")
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if pwd := p.env["PWD"]; filepath.IsAbs(pwd) && unix.Stat(pwd, &st) == nil && at == (object{st.Dev, st.Ino}) {
		return pwd, nil
	}
	var buf [unix.PathMax]byte
	n, err := unix.Readlinkat(int(p.dir.Fd()), "cwd", buf[:])
	return string(buf[:max(n, 0)]), err
}

func (p *peer) object(name string) (object, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(p.dir.Fd()), name, &st, 0)
	return object{st.Dev, st.Ino}, err
}

// ownCircumstances are those of this process.
func ownCircumstances() (circumstances, error) {
	dir, err := os.OpenFile("/proc/thread-self", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return circumstances{}, err
	}
	defer dir.Close()
	own := peer{pid: os.Getpid(), dir: dir}
	return own.circumstances()
}
