package build

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/idmap"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
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
	empty := "" // the first directory that is covered
	hide := func(p string) {
		m := hideProc(p)
		switch {
		case m.Type == "":
		case empty == "":
			empty = p
		default: // to make a file system, and to destroy it, takes longer than all binds together
			m = forkexec.Mount{Source: empty, Target: p, Flags: unix.MS_BIND}
		}
		list = append(list, m)
	}
	for _, p := range plan.Exec.Hide {
		hide(p)
	}
	if hidesHierarchies(plan) {
		list = append(list, forkexec.Mount{Source: hierarchies, Target: "/proc/cgroups", Flags: unix.MS_BIND})
	}
	hide(supervisorProc)
	for _, m := range plan.View.Mounts {
		if m.PerExec && len(below(plan, m)) == 0 {
			list = append(list, tmpfs(plan, m))
		}
	}
	if plan.Exec.NoProc {
		// Never instead of what is above: mounted, with its masks, an exec's /proc gives the kernel no reason to allow another one, and the
		// sandbox's, with what is pinned below it, stays under it.
		m := emptyDir("/proc")
		m.Flags |= forkexec.Cover
		list = append(list, m)
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
		return emptyDir(p)
	}
	return forkexec.Mount{Source: "/dev/null", Target: p, Flags: unix.MS_BIND}
}

func emptyDir(p string) forkexec.Mount {
	return forkexec.Mount{
		Source: "tmpfs", Target: p, Type: "tmpfs", Data: "mode=0555,nr_inodes=2,size=4k",
		Flags: unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC,
	}
}

// below are what the view has on a tmpfs that each exec has for itself: the topmost mounts, each with all below it.
func below(plan *spec.Plan, around rootfs.Mount) []rootfs.Mount {
	var list []rootfs.Mount
	for _, m := range plan.View.Mounts {
		within := func(dir string) bool { return m.Target != dir && pathname.Within(m.Target, dir) }
		if !m.Pin && within(around.Target) && !slices.ContainsFunc(list, func(n rootfs.Mount) bool { return within(n.Target) }) {
			list = append(list, m)
		}
	}
	return list
}

// ExecSteps make the tmpfs on which there are other mounts: these are copied before, and put into the new one.
func ExecSteps(plan *spec.Plan) []forkexec.ViewStep {
	var steps []forkexec.ViewStep
	for _, m := range plan.View.Mounts {
		if on := below(plan, m); m.PerExec && len(on) > 0 {
			steps = renew(steps, plan, m, on)
		}
	}
	return steps
}

// renew makes one of them, with what is on it.
func renew(steps []forkexec.ViewStep, plan *spec.Plan, m rootfs.Mount, on []rootfs.Mount) []forkexec.ViewStep {
	first := len(steps)
	for _, n := range on {
		steps = append(steps, forkexec.ViewStep{Kind: forkexec.ViewHold, Target: n.Target})
	}
	steps = append(steps, forkexec.ViewStep{Kind: forkexec.ViewCover, Target: m.Target, Source: tmpfs(plan, m).Data})
	made := map[string]bool{}
	for _, n := range on {
		steps = append(steps, points(strings.TrimPrefix(n.Target, m.Target+"/"), n.Dir, made)...)
	}
	steps = append(steps, forkexec.ViewStep{Kind: forkexec.ViewCovered, Target: m.Target, Attributes: idmap.Attributes(m)})
	for i, n := range on {
		steps[first+i].For = len(steps)
		steps = append(steps, forkexec.ViewStep{Kind: forkexec.ViewAttach, Target: n.Target})
	}
	return steps
}

// points make a mount point in a cover, with the directories on the way.
func points(rel string, dir bool, made map[string]bool) []forkexec.ViewStep {
	var steps []forkexec.ViewStep
	for at := range len(rel) {
		if rel[at] == '/' && !made[rel[:at]] {
			made[rel[:at]] = true
			steps = append(steps, forkexec.ViewStep{Kind: forkexec.ViewDir, Target: rel[:at]})
		}
	}
	kind := forkexec.ViewFile
	if dir {
		kind = forkexec.ViewDir
	}
	made[rel] = true
	return append(steps, forkexec.ViewStep{Kind: kind, Target: rel})
}
