package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/spec"
)

// limitCost is what it costs that a limit is held by a rung below control groups; docs/security.md has the same.
func limitCost(limit, by string) string {
	switch {
	case limit == "memory":
		return "limits.memory is held by a watcher for each exec by itself; at 1 GB/s it sees 50 MB too late"
	case limit == "cpus":
		return "limits.cpus takes whole processors only, which others use too"
	case by == spec.ByRlimit:
		return "limits.pids is exact for each exec, but all execs together may have 64 more"
	}
	return "limits.pids is held by a watcher, which a burst of processes gets past"
}

// limitRows say which rung holds each limit that control groups hold best.
func (f *facts) limitRows() []Row {
	var rows []Row
	for _, c := range []struct{ limit, controller string }{{"memory", "memory"}, {"pids", "pids"}, {"cpus", "cpu"}} {
		name := "limits_" + c.limit
		at := slices.IndexFunc(f.limits, func(l spec.Limit) bool { return l.Name == c.limit })
		switch {
		case f.limitsErr != nil:
			rows = append(rows, bad(name, notTried+": "+f.limitsErr.Error(), "policies with limits are refused", f.groupFix()))
		case at < 0:
			rows = append(rows, bad(name, "nothing holds it", "policies with this limit are refused", f.groupFix()))
		case slices.Contains([]string{spec.ByCgroup2, spec.BySystemd, spec.ByCgroup1}, f.limits[at].EnforcedBy):
			rows = append(rows, good(name, f.limits[at].EnforcedBy))
		default:
			by := f.limits[at].EnforcedBy
			value := by
			if f.groups.Found.Reason != "" {
				value += " (" + printable(f.groups.Found.Reason) + ")"
			}
			rows = append(rows, weaker(name, value, limitCost(c.limit, by), f.groupFix()))
		}
	}
	return rows
}

// groupFix is how the caller gets a control group with every controller.
func (f *facts) groupFix() string {
	g, a := f.groups, f.around
	switch {
	case g.ReadOnly:
		return "docker run --cgroupns private --security-opt writable-cgroups=true"
	case g.Systemd && len(g.Found.Controllers) > 0:
		return a.AsRoot("sh -c " + quoted(delegateSystemd))
	case g.Systemd:
		return a.AsRoot("loginctl enable-linger " + f.user)
	case g.Unified != "":
		return a.AsRoot("sh -c " + quoted(fmt.Sprintf(delegateUnified, g.Unified, a.UID)) + " sh $$")
	case len(g.Legacy) > 0:
		return a.AsRoot("sh -c " + quoted(fmt.Sprintf(delegateLegacy, strings.Join(g.Legacy, " "), a.UID)) + " sh $$")
	}
	return a.AsRoot("mount -t cgroup2 cgroup2 /sys/fs/cgroup")
}

// delegateSystemd has systemd give users' managers every controller; it holds from their next start.
const delegateSystemd = `d=/etc/systemd/system/user@.service.d; mkdir -p $d && ` +
	`printf "[Service]\nDelegate=cpu memory pids\n" >$d/delegate.conf && systemctl daemon-reload`

// What gives the shell that calls it, whose number is $1, a control group that its user may divide. In version 2 what
// runs is one level down, since a group that gives controllers to others holds no process.
const (
	delegateLegacy = `for d in %[1]s; do g=$d/user-%[2]d; mkdir -p $g; chown %[2]d $g $g/tasks $g/cgroup.procs; echo $1 >$g/cgroup.procs; done`

	delegateUnified = `d=%[1]s; g=$d/user-%[2]d; mkdir -p $g/shell; echo $1 >$g/shell/cgroup.procs; ` +
		`for f in $d $g; do echo +memory +pids +cpu >$f/cgroup.subtree_control; done; ` +
		`chown %[2]d $g $g/cgroup.* $g/shell $g/shell/cgroup.*`
)
