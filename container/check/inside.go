package check

import (
	"encoding/binary"
	"os"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/hooks"
)

// probe is the list of system calls that are made inside, with the memory that they fill and what each is for.
type probe struct {
	calls forkexec.Calls
	pin   runtime.Pinner

	paths      []pathCalls
	stats      []unix.Stat_t
	statfs     []unix.Statfs_t
	namespaces []int // calls, and stats behind those of the paths
	status     [2]text
	securebits int
	refused    [][2]int
	processes  text
	fds        text
	kills      []int
	own        int
	forwards   []int
	reached    []int // of the targets
	rlimits    []rlimitCall
	affinity   text
	group      text
	hello      int
	message    *unix.Msghdr // with descriptor 0
	sent       []sentFile
	nested     nested
	covered    bool // a cover keeps the program from the exec's procfs
	proc       *procCalls
	last       int
}

type pathCalls struct { // -1: not made
	stat, statfs, open, tmpfile, access int
	changes                             []change
	list                                *text // of a directory; nil: not made
}

// procCalls look at /proc. self and make are about /proc/self.
type procCalls struct {
	list               text
	statfs, self, make int
	fs                 unix.Statfs_t
	stat               unix.Stat_t
}

type rlimitCall struct {
	call  int
	value []byte
}

// text is a file or directory that is read: the calls, and where its content goes.
type text struct {
	opened, read int
	buf          []byte
}

const (
	pathBuf    = 4096
	listBuf    = 32 << 10
	emptyBuf   = 1 << 10 // more than "." and ".." take, and one name of the longest
	atFD       = unix.AT_FDCWD
	tmpfile    = unix.O_TMPFILE | unix.O_RDWR | unix.O_CLOEXEC
	onlyRead   = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	onlyWrite  = unix.O_WRONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	sendWithin = 100 * time.Millisecond // to loopback it takes microseconds
)

// place is where a call finds a path: of /proc by the check's own descriptor, where a cover keeps the program from it.
func (p *probe) place(name string) (dir any, rel string) {
	if below, ok := strings.CutPrefix(name, "/proc"); ok && p.covered {
		return forkexec.Proc, "." + below
	}
	return atFD, name
}

// lookAtProc looks at what the program sees at /proc, if it is to see nothing.
func (p *probe) lookAtProc() {
	if !p.covered {
		return
	}
	q := &procCalls{}
	p.proc = q
	p.pin.Pin(q)
	q.list = p.list(atFD, "/proc", emptyBuf)
	q.statfs = p.calls.Add(forkexec.InPlace, unix.SYS_FSTATFS, forkexec.Result(q.list.opened), uintptr(unsafe.Pointer(&q.fs)))
	p.close(forkexec.InPlace, q.list.opened)
	q.self = p.calls.Add(forkexec.InPlace, unix.SYS_NEWFSTATAT, atFD, "/proc/self", uintptr(unsafe.Pointer(&q.stat)), unix.AT_SYMLINK_NOFOLLOW)
	q.make = p.calls.Add(forkexec.InPlace, unix.SYS_MKDIRAT, atFD, "/proc/self", 0o700)
}

// plan writes the list. What is counted comes before what opens descriptors that stay open.
func (p *probe) plan(c *Checker) {
	p.covered = c.subject.NoProc
	p.status[0] = p.file(forkexec.AtEntry, "/proc/self/status", pathBuf)
	p.status[1] = p.file(forkexec.InPlace, "/proc/self/status", pathBuf)
	p.securebits = p.calls.Add(forkexec.InPlace, unix.SYS_PRCTL, unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	for _, r := range refusedCalls(&c.subject) {
		p.refused = append(p.refused, r.add(&p.calls))
	}
	p.fds = p.directory("/proc/self/fd", listBuf)
	p.processes = p.directory("/proc", listBuf)
	p.lookAtProc()
	p.signals(c)
	p.limits(c)
	p.lookAtPaths(c)
	if c.subject.Network {
		p.network(c)
	}
	p.hello = p.sayHello()
	p.nest(c)
	p.last = p.calls.Add(forkexec.InPlace, unix.SYS_GETPID)
}

func (p *probe) done() bool {
	_, err := p.calls.Result(p.last)
	return err == nil
}

func (p *probe) release() {
	p.calls.Release()
	p.pin.Unpin()
}

// err is what a call answered.
func (p *probe) err(call int) error {
	_, err := p.calls.Result(call)
	return err
}

func (p *probe) close(stage forkexec.Stage, opened int) {
	p.calls.Add(stage, unix.SYS_CLOSE, forkexec.Result(opened))
}

// file reads the beginning of a file.
func (p *probe) file(stage forkexec.Stage, name string, size int) text {
	t := text{buf: make([]byte, size)}
	dir, rel := p.place(name)
	t.opened = p.calls.Add(stage, unix.SYS_OPENAT, dir, rel, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	t.read = p.calls.Add(stage, unix.SYS_READ, forkexec.Result(t.opened), t.buf, size)
	p.close(stage, t.opened)
	return t
}

func (p *probe) directory(name string, size int) text {
	dir, rel := p.place(name)
	t := p.list(dir, rel, size)
	p.close(forkexec.InPlace, t.opened)
	return t
}

// list leaves the directory open.
func (p *probe) list(dir any, rel string, size int) text {
	t := text{buf: make([]byte, size)}
	t.opened = p.calls.Add(forkexec.InPlace, unix.SYS_OPENAT, dir, rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	t.read = p.calls.Add(forkexec.InPlace, unix.SYS_GETDENTS64, forkexec.Result(t.opened), t.buf, size)
	return t
}

// signals looks for processes that exist outside. A small number could be one of the exec's own.
func (p *probe) signals(c *Checker) {
	for _, pid := range []int{os.Getpid(), c.sb.PID} {
		if pid > 2 {
			c.facts.Signalled = append(c.facts.Signalled, hooks.Signalled{PID: pid})
			p.kills = append(p.kills, p.calls.Add(forkexec.InPlace, unix.SYS_KILL, pid, 0))
		}
	}
}

func (p *probe) limits(c *Checker) {
	const pair, mask = 16, forkexec.MaxCPUs / 8
	for _, l := range c.facts.Limits {
		if resource := rlimitNumber(l.Name); resource >= 0 {
			r := rlimitCall{value: make([]byte, pair)}
			r.call = p.calls.Add(forkexec.InPlace, unix.SYS_PRLIMIT64, 0, resource, 0, r.value)
			p.rlimits = append(p.rlimits, r)
			continue
		}
		if l.Name != processorsLimit {
			continue // it is not known how to read it: read.go says so
		}
		p.affinity.buf = make([]byte, mask)
		p.affinity.read = p.calls.Add(forkexec.InPlace, unix.SYS_SCHED_GETAFFINITY, 0, mask, p.affinity.buf)
	}
	if len(c.facts.Groups) > 0 {
		p.group = p.file(forkexec.InPlace, "/proc/self/cgroup", pathBuf)
	}
}

// rlimitNumber undoes forkexec.RlimitName; -1 if it is no rlimit.
func rlimitNumber(name string) int {
	for _, r := range []int{unix.RLIMIT_CPU, unix.RLIMIT_FSIZE, unix.RLIMIT_NOFILE, unix.RLIMIT_NPROC, unix.RLIMIT_CORE} {
		if forkexec.RlimitName(r) == name {
			return r
		}
	}
	return -1
}

// lookAtPaths changes nothing: what is read-only is opened without O_CREAT and O_TRUNC, and in a directory a file is made
// that never has a name.
func (p *probe) lookAtPaths(c *Checker) {
	n := len(c.subject.Paths)
	p.stats = make([]unix.Stat_t, n+len(c.facts.Namespaces)+1)
	p.statfs = make([]unix.Statfs_t, n+1)
	p.pin.Pin(&p.stats[0])
	p.pin.Pin(&p.statfs[0])
	for i, path := range c.subject.Paths {
		p.paths = append(p.paths, p.lookAt(i, path, c))
	}
	for i, ns := range c.facts.Namespaces {
		dir, rel := p.place("/proc/self/ns/" + ns.Name)
		p.namespaces = append(p.namespaces, p.calls.Add(forkexec.InPlace, unix.SYS_NEWFSTATAT, dir, rel, uintptr(unsafe.Pointer(&p.stats[n+i])), 0))
	}
	p.stat("/proc", len(p.stats)-1) // behind all others
}

func (p *probe) lookAt(i int, path hooks.Path, c *Checker) pathCalls {
	outside := c.facts.Paths[i].Outside
	dir, regular := outside.Dir(), outside.Regular()
	if path.Host == "" {
		dir, regular = path.Dir, !path.Dir
	}
	q := pathCalls{stat: -1, statfs: -1, open: -1, tmpfile: -1, access: -1}
	if path.Kind == hooks.Gone { // a symlink that leads nowhere would be there too
		q.stat = p.lstat(path.Inside, i)
		return q
	}
	q.stat = p.stat(path.Inside, i)
	switch path.Kind {
	case hooks.Secret, hooks.OtherName, hooks.ProbePath, hooks.HiddenProc:
		return q
	case hooks.Foreign:
		q.changes = p.change(i, path, outside, c.programID())
		return q
	case hooks.Mask:
		q.open = p.try(path.Inside, unix.R_OK, dir || regular, onlyRead)
		if path.Empty && dir {
			list := p.directory(path.Inside, emptyBuf)
			q.list = &list
		}
	case hooks.WritableGrant:
		q.open, q.access = p.access(path.Inside, unix.R_OK), p.access(path.Inside, unix.W_OK)
		if dir {
			q.tmpfile = p.make(i, path)
		}
	default:
		q.open = p.access(path.Inside, unix.R_OK)
		if dir {
			q.access = p.open(path.Inside, tmpfile, 0o600)
		} else {
			q.access = p.try(path.Inside, unix.W_OK, regular, onlyWrite)
		}
	}
	q.statfs = p.calls.Add(forkexec.InPlace, unix.SYS_STATFS, path.Inside, uintptr(unsafe.Pointer(&p.statfs[i])))
	return q
}

// try opens what it does no harm to open, and asks about the rest.
func (p *probe) try(name string, mode int, harmless bool, flags int) int {
	if harmless {
		return p.open(name, flags, 0)
	}
	return p.access(name, mode)
}

func (p *probe) stat(name string, at int) int {
	return p.calls.Add(forkexec.InPlace, unix.SYS_NEWFSTATAT, atFD, name, uintptr(unsafe.Pointer(&p.stats[at])), 0)
}

func (p *probe) lstat(name string, at int) int {
	return p.calls.Add(forkexec.InPlace, unix.SYS_NEWFSTATAT, atFD, name, uintptr(unsafe.Pointer(&p.stats[at])), unix.AT_SYMLINK_NOFOLLOW)
}

func (p *probe) open(name string, flags, mode int) int {
	opened := p.calls.Add(forkexec.InPlace, unix.SYS_OPENAT, atFD, name, flags, mode)
	p.close(forkexec.InPlace, opened)
	return opened
}

func (p *probe) access(name string, mode int) int {
	return p.calls.Add(forkexec.InPlace, unix.SYS_FACCESSAT, atFD, name, mode)
}

// network tries to reach what listens outside, then a port of the sandbox's own, which might have got the number of one
// outside, and the ports that are forwarded.
func (p *probe) network(c *Checker) {
	for i := range c.targets {
		t := &c.targets[i]
		s, connected := p.connect(t.family, t.kind, t.address)
		if t.kind == unix.SOCK_DGRAM {
			token := []byte(insideToken)
			p.calls.Add(forkexec.InPlace, unix.SYS_SENDTO, forkexec.Result(s), token, len(token), 0, 0, 0)
			connected = p.calls.Add(forkexec.InPlace, unix.SYS_SENDTO, forkexec.Result(s), token, len(token), 0, 0, 0)
		}
		p.close(forkexec.InPlace, s)
		p.reached = append(p.reached, connected)
	}
	const size = 16
	name, length := inet4(0), binary.NativeEndian.AppendUint32(nil, size)
	own := p.calls.Add(forkexec.InPlace, unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	p.calls.Add(forkexec.InPlace, unix.SYS_BIND, forkexec.Result(own), name, size)
	p.calls.Add(forkexec.InPlace, unix.SYS_LISTEN, forkexec.Result(own), 1)
	p.calls.Add(forkexec.InPlace, unix.SYS_GETSOCKNAME, forkexec.Result(own), name, length)
	s, connected := p.connect(unix.AF_INET, unix.SOCK_STREAM, name)
	p.own = connected
	p.close(forkexec.InPlace, s)
	p.close(forkexec.InPlace, own)
	for _, port := range c.subject.Forwards {
		s, connected := p.connect(unix.AF_INET, unix.SOCK_STREAM, inet4(port))
		p.close(forkexec.InPlace, s)
		p.forwards = append(p.forwards, connected)
	}
}

// connect does not wait longer than for what is on this machine.
func (p *probe) connect(family, kind int, address []byte) (socket, connected int) {
	within := unix.NsecToTimeval(sendWithin.Nanoseconds())
	limit := binary.NativeEndian.AppendUint64(nil, uint64(within.Sec))
	limit = binary.NativeEndian.AppendUint64(limit, uint64(within.Usec))
	s := p.calls.Add(forkexec.InPlace, unix.SYS_SOCKET, family, kind|unix.SOCK_CLOEXEC, 0)
	p.calls.Add(forkexec.InPlace, unix.SYS_SETSOCKOPT, forkexec.Result(s), unix.SOL_SOCKET, unix.SO_SNDTIMEO, limit, len(limit))
	return s, p.calls.Add(forkexec.InPlace, unix.SYS_CONNECT, forkexec.Result(s), address, len(address))
}
