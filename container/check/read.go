package check

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// content is what was read.
func (p *probe) content(t text) ([]byte, error) {
	if err := p.err(t.opened); err != nil {
		return nil, err
	}
	n, err := p.calls.Result(t.read)
	if err != nil {
		return nil, err
	}
	return t.buf[:n], nil
}

// names are those in a directory.
func (p *probe) names(t text) ([]string, error) {
	data, err := p.content(t)
	var list []string
	for d, rest := hostfs.NextDirent(data); d.Name != ""; d, rest = hostfs.NextDirent(rest) {
		if d.Name != "." && d.Name != ".." {
			list = append(list, d.Name)
		}
	}
	return list, err
}

// numbers are the names in a directory that are numbers.
func (p *probe) numbers(t text) ([]int, error) {
	names, err := p.names(t)
	var list []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			list = append(list, n)
		}
	}
	return list, err
}

// read turns what the calls have left into facts.
func (p *probe) read(c *Checker, cpu time.Duration) {
	f := &c.facts
	before, _ := p.content(p.status[0]) // the checks that need it report what is missing
	now, _ := p.content(p.status[1])
	f.StatusAtEntry, f.Status = procfs.StatusFields(string(before)), procfs.StatusFields(string(now))
	f.Securebits, f.SecurebitsErr = p.calls.Result(p.securebits)
	for i, r := range refusedCalls(&c.subject) {
		f.Refused = append(f.Refused, hooks.RefusedCall{
			Name: r.name, Want: r.want, Unfiltered: p.err(p.refused[i][0]), Filtered: p.err(p.refused[i][1]),
		})
	}
	f.Processes, f.ProcessesErr = p.numbers(p.processes)
	f.Descriptors, f.DescriptorsErr = p.numbers(p.fds)
	listing, _ := p.calls.Result(p.fds.opened)
	f.Descriptors = slices.DeleteFunc(f.Descriptors, func(fd int) bool { return int64(fd) == listing || p.covered && fd == forkexec.CheckProc })
	p.readProc(&f.Proc)
	for i, call := range p.kills {
		f.Signalled[i].Inside = p.err(call)
	}
	for i, call := range p.namespaces {
		if p.err(call) == nil {
			f.Namespaces[i].Inside = p.stats[len(p.paths)+i].Ino
		}
	}
	p.readLimits(f, cpu)
	for i, q := range p.paths {
		p.readPath(i, q, &f.Paths[i])
	}
	p.readNested(f)
	f.ProcDev = p.stats[len(p.stats)-1].Dev
	if !c.subject.Network {
		return
	}
	for i, call := range p.reached {
		c.targets[i].inside = p.err(call)
	}
	f.OwnLoopback = p.err(p.own)
	for i, call := range p.forwards {
		f.Forwards = append(f.Forwards, hooks.Reach{
			Target: "port " + strconv.Itoa(int(c.subject.Forwards[i])), Inside: p.err(call),
		})
	}
}

func (p *probe) readProc(seen *hooks.ProcSeen) {
	if p.proc == nil {
		return
	}
	var host unix.Statfs_t
	if unix.Statfs("/proc", &host) == nil {
		seen.HostType = host.Type
	}
	q := p.proc
	names, err := p.names(q.list)
	seen.Entries, seen.Err, seen.Self, seen.Make = len(names), errors.Join(err, p.err(q.statfs)), p.err(q.self), p.err(q.make)
	seen.Type, seen.ReadOnly = q.fs.Type, q.fs.Flags&unix.ST_RDONLY != 0
}

func (p *probe) readPath(i int, q pathCalls, seen *hooks.PathSeen) {
	if err := p.err(q.stat); err != nil {
		seen.Inside.Err = err
	} else {
		seen.Inside = nodeFrom(&p.stats[i])
	}
	if q.statfs >= 0 && p.err(q.statfs) == nil {
		seen.Inside.ReadOnly = p.statfs[i].Flags&unix.ST_RDONLY != 0
		seen.Inside.NoExec = p.statfs[i].Flags&unix.ST_NOEXEC != 0
	}
	if q.open >= 0 {
		seen.Open = p.err(q.open)
	}
	if q.list != nil {
		names, err := p.names(*q.list)
		if seen.Entries = len(names); err != nil && seen.Open == nil {
			seen.Open = err
		}
	}
	if q.access >= 0 {
		seen.Write = p.err(q.access)
	}
	for _, ch := range q.changes {
		seen.Changes = append(seen.Changes, hooks.Attempt{Name: ch.name, Err: p.err(ch.call)})
	}
	if q.tmpfile < 0 {
		return
	}
	// Not every file system can make a file without a name.
	if err := p.err(q.tmpfile); !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
		seen.Write = err
	}
}

func (p *probe) readLimits(f *hooks.Facts, cpu time.Duration) {
	at := 0
	for i := range f.Limits {
		l := &f.Limits[i]
		if rlimitNumber(l.Name) < 0 {
			if l.Name != processorsLimit {
				l.Err = errors.New("nothing reads it back")
				continue
			}
			l.Err = p.err(p.affinity.read)
			for _, b := range p.affinity.buf {
				l.Got += uint64(bits.OnesCount8(b))
			}
			continue
		}
		l.Err = p.err(p.rlimits[at].call)
		l.Got = binary.NativeEndian.Uint64(p.rlimits[at].value[8:]) // the hard one
		if l.Exact {                                                // the kernel looks at the other one
			l.Got = binary.NativeEndian.Uint64(p.rlimits[at].value)
		}
		at++
	}
	if len(f.Groups) == 0 {
		return
	}
	data, _ := p.content(p.group)
	for i := range f.Groups {
		g := &f.Groups[i]
		controller, _, _ := strings.Cut(g.Controllers, ",")
		g.Got, g.Counted = groupOf(string(data), controller), cpu > 0
	}
}

// groupOf finds the path of a controller's group in /proc/self/cgroup.
func groupOf(text, controller string) string {
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && slices.Contains(strings.Split(fields[1], ","), controller) {
			return fields[2]
		}
	}
	return ""
}
