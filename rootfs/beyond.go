package rootfs

import (
	"path"
	"slices"

	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// Excess is a path of the host that a view shows, or lets programs write, and another view does not.
type Excess struct {
	Host     string
	Writable bool   // it is shown by both, and writable in one alone
	From     string // what asks for it
}

// Access is what a view allows of a path of the host.
type Access int

// Each includes those before it.
const (
	Hidden Access = iota
	Readable
	Writable
)

// Beyond lists what a view shows of the host more than another does. The host is not looked at: what the views show changes only where a
// mount begins, so these paths are compared. Of paths in one another the upper is listed.
func (v *View) Beyond(other *View) []Excess {
	var list []Excess
	points := append(v.points(), other.points()...)
	slices.Sort(points)
	own, others := v.Shown(), other.Shown()
	for _, host := range slices.Compact(points) {
		mine, m := v.access(own, host)
		theirs, _ := other.access(others, host)
		if mine <= theirs || slices.ContainsFunc(list, func(e Excess) bool { return pathname.Within(host, e.Host) && e.From == m.From }) {
			continue
		}
		list = append(list, Excess{host, theirs == Readable, m.From})
	}
	return list
}

// Access says what programs may do with a path of the host under any of its names inside, whether something is there or not.
func (v *View) Access(host string) Access {
	a, _ := v.access(v.Shown(), path.Clean(host))
	return a
}

func (v *View) access(names Names, host string) (best Access, by *Mount) {
	for i := range v.Mounts {
		m := &v.Mounts[i]
		rest, in := pathname.Rest(host, m.Source)
		if m.Kind != MountBind || m.Source == "" || !in {
			continue
		}
		back, writable, ok := names.HostOf(path.Join(m.Target, rest))
		if !ok || back != host { // another mount lies there
			continue
		}
		is := Readable
		if writable {
			is = Writable
		}
		if is > best {
			best, by = is, m
		}
	}
	return best, by
}

// points are the paths of the host at which what the view allows changes: the sources of its mounts, and what each of them covers of the
// mount that it lies in.
func (v *View) points() []string {
	var list []string
	targets := v.ByTarget()
	for _, m := range v.Mounts {
		if m.Kind == MountBind && m.Source != "" {
			list = append(list, m.Source)
		}
		if covered := targets.HostPath(pathname.Parent(m.Target)); covered != "" && m.Target != "/" {
			list = append(list, pathname.Join(covered, path.Base(m.Target)))
		}
	}
	return list
}
