//go:build sabotage

package sabotage

import (
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Plan leaves a layer out of what is built. What is checked was decided before.
func Plan(plan *spec.Plan) *spec.Plan {
	broken, view := *plan, *plan.View
	broken.View = &view
	view.Mounts = slices.Clone(view.Mounts)
	all := func(kind hooks.PathKind) []string { return pathsOf(plan, kind) }
	first := func(kind hooks.PathKind) string { return all(kind)[0] }
	at := func(target string) *rootfs.Mount {
		i := slices.IndexFunc(view.Mounts, func(m rootfs.Mount) bool { return m.Target == target })
		return &view.Mounts[i]
	}
	drop := func(target string) {
		view.Mounts = slices.DeleteFunc(view.Mounts, func(m rootfs.Mount) bool { return m.Target == target })
	}
	showAs := func(host, target string, dir bool) {
		view.Mounts = append(view.Mounts, rootfs.Mount{Kind: rootfs.MountBind, Source: host, Target: target, Dir: dir})
	}
	show := func(host string) { showAs(host, host, false) }
	hostOf := func(kind hooks.PathKind) string {
		i := slices.IndexFunc(plan.Checks.Paths, func(p hooks.Path) bool { return p.Kind == kind && p.Host != "" })
		return plan.Checks.Paths[i].Host
	}
	switch {
	case forkexec.Without("secret"):
		show(first(hooks.Secret))
	case forkexec.Without("other name of a secret"):
		showAs(hostOf(hooks.Secret), "/sandboxrun-other", false)
	case forkexec.Without("other name above a secret"):
		showAs(path.Dir(hostOf(hooks.Secret)), "/sandboxrun-other", true)
	case forkexec.Without("other name of a mask"):
		showAs(plan.Checks.Denied[0], "/sandboxrun-other", false)
	case forkexec.Without("probe path"):
		show("/etc/shadow")
	case forkexec.Without("mask"):
		for _, target := range all(hooks.Mask) {
			drop(target)
			view.Masked = slices.DeleteFunc(slices.Clone(view.Masked), func(d rootfs.Denied) bool { return d.Inside == target })
		}
	case forkexec.Without("grant"):
		drop(first(hooks.ReadOnlyGrant))
	case forkexec.Without("read-only"):
		for _, target := range all(hooks.ReadOnlyGrant) {
			at(target).Writable = true
		}
	case forkexec.Without("writable"):
		at(first(hooks.WritableGrant)).Writable = false
	case forkexec.Without("relay"):
		r := *plan.Relay
		r.Listeners = r.Listeners[1:]
		broken.Relay = &r
	case forkexec.Without("enforcement"):
		broken.Limits = append(slices.Clone(plan.Limits), spec.Limit{Name: "made_up", Value: 1, EnforcedBy: spec.ByWatcher})
	}
	if forkexec.Without("program id") || forkexec.Without("idmap") {
		broken.IDs.GrantUIDs, broken.IDs.GrantGIDs = nil, nil
	}
	return &broken
}

// Launch leaves a layer out of what execs take from the sandbox's state: which variables of the caller's they get, and as whom
// they run.
func Launch(allow *[]string, uid, gid *int) {
	if forkexec.Without("environment") {
		*allow = []string{"*"}
	}
	if forkexec.Without("program id") { // it is the caller, and so the owner of all that is root's
		*uid, *gid = 0, 0
	}
}

func pathsOf(plan *spec.Plan, kind hooks.PathKind) []string {
	var list []string
	for _, p := range plan.Checks.Paths {
		if p.Kind == kind && p.Host != "" {
			list = append(list, p.Inside)
		}
	}
	return list
}

// Verdict lets a sandbox start of which a check is broken. What attacks get then shows what the layers that are left
// hold.
func Verdict(broken []hooks.Result) []hooks.Result {
	if forkexec.Without("refusal of broken checks") {
		return nil
	}
	return broken
}

// Command leaves a layer out of how programs are started, that of the checks and all others.
func Command(cmd *forkexec.Command) {
	drop := func(which func(forkexec.Mount) bool) { cmd.Mounts = slices.DeleteFunc(slices.Clone(cmd.Mounts), which) }
	switch {
	case forkexec.Without("network"):
		cmd.Namespaces &^= unix.CLONE_NEWNET
	case forkexec.Without("uts"):
		cmd.Namespaces &^= unix.CLONE_NEWUTS
	case forkexec.Without("sandbox ipc"):
		cmd.Namespaces &^= unix.CLONE_NEWIPC
	case forkexec.Without("proc"):
		drop(func(m forkexec.Mount) bool { return m.Type == "proc" })
	case forkexec.Without("proc masks"):
		drop(func(m forkexec.Mount) bool { return m.Type == "tmpfs" && m.Target != "/proc" || covers(m) })
	case forkexec.Without("proc cover"):
		drop(func(m forkexec.Mount) bool { return m.Flags&forkexec.Cover != 0 })
	case forkexec.Without("proc read-only"):
		drop(func(m forkexec.Mount) bool {
			return m.Type == "" && !covers(m) && path.Dir(m.Target) == "/proc"
		})
	case forkexec.Without("filter"), forkexec.Without("no_new_privs"): // without that none can be loaded
		cmd.Filter = nil
	case forkexec.Without("once"):
		cmd.Once = false
	case forkexec.Without("rules"):
		cmd.Filter = []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
	case forkexec.Without("rlimits"):
		cmd.Rlimits = nil
	case forkexec.Without("core limit"):
		cmd.Rlimits = slices.DeleteFunc(slices.Clone(cmd.Rlimits), func(r forkexec.Rlimit) bool { return r.Resource == unix.RLIMIT_CORE })
	case forkexec.Without("processors"):
		cmd.CPUs = nil
	case forkexec.Without("control groups"):
		cmd.Limits.Groups = nil
	}
}

// covers reports whether a mount hides something of /proc by a file or directory that is there already.
func covers(m forkexec.Mount) bool {
	return m.Type == "" && (m.Source == "/dev/null" || m.Source != m.Target && path.Dir(m.Source) == "/proc")
}
