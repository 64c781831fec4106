package build

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// ExecMounts are what each exec mounts for itself: a /proc of its own PID namespace, with its masks, its terminals, and the
// view's mounts that live for one exec. Terminals that execs shared would let one read what is typed at another's.
func ExecMounts(plan *spec.Plan) []forkexec.Mount {
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	list := []forkexec.Mount{
		{Source: "proc", Target: "/proc", Type: "proc", Flags: safe},
		{
			Source: "devpts", Target: "/dev/pts", Type: "devpts", Flags: unix.MS_NOSUID | unix.MS_NOEXEC,
			Data: strings.Join(spec.TerminalOptions(), ","),
		},
	}
	for _, p := range plan.Exec.Readonly {
		list = append(list,
			forkexec.Mount{Source: p, Target: p, Flags: unix.MS_BIND},
			forkexec.Mount{Target: p, Flags: unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | safe})
	}
	for _, p := range plan.Exec.Hide {
		list = append(list, hideProc(p))
	}
	if hidesHierarchies(plan) {
		list = append(list, forkexec.Mount{Source: hierarchies, Target: "/proc/cgroups", Flags: unix.MS_BIND})
	}
	list = append(list, hideProc(supervisorProc))
	for _, m := range plan.View.Mounts {
		if m.PerExec {
			list = append(list, tmpfs(plan, m))
		}
	}
	return list
}

// supervisorProc is the supervisor's directory in the program's /proc. Where both are the same user the program could
// write the files in it that have no check besides their mode: autogroup, oom_score_adj, coredump_filter. The mount option
// hidepid would hide those processes of the program's own, too, that are not dumpable.
const supervisorProc = "/proc/1"

// hideProc covers a file or directory of /proc. Those that are directories are few and well known.
func hideProc(p string) forkexec.Mount {
	if p == supervisorProc || spec.HiddenProcDir(p) {
		return forkexec.Mount{
			Source: "tmpfs", Target: p, Type: "tmpfs", Data: "mode=0555,nr_inodes=2,size=4k",
			Flags: unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC,
		}
	}
	return forkexec.Mount{Source: "/dev/null", Target: p, Flags: unix.MS_BIND}
}
