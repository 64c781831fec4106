package spec

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/compile"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Hostname is that of every sandbox.
const Hostname = "sandbox"

const (
	defaultEnv = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	umask      = 0o022
)

// Resolve decides everything about a sandbox. The error is a *fault.Error or a *PolicyError.
func Resolve(p *policy.Policy, h *Host) (*Plan, error) {
	ids, err := identify(p.User, h)
	if err != nil {
		return nil, err
	}
	if err := noProc(p, h); err != nil {
		return nil, err
	}
	p, found, err := interpreters(p, h)
	if err != nil {
		return nil, err
	}
	plan := &Plan{Name: p.Name, PolicyFile: p.File, PolicyDigest: p.Digest, PolicyPaths: p.Paths, Network: p.Network.Mode}
	p = hideModules(p, h, plan)
	plan.Files = p.Files
	plan.BestEffort = p.Enforce == policy.EnforceBestEffort
	home, err := compileFiles(p, h, ids, plan)
	if err != nil {
		return nil, err
	}
	plan.Warnings = append(plan.Warnings, plan.View.Skipped...)
	plan.weaken(emptied(plan.View)...)
	if ids, err = idmap(p, h, ids, plan); err != nil {
		return nil, err
	}
	if err := plan.Kept.checkViews(h, ids.own); err != nil {
		return nil, err
	}
	makeWay(p, h, ids, plan)
	plan.Search = searched(p, plan.View)
	plan.Exec = execOf(p, h, ids, plan.View.Workdir, home)
	leadPath(plan, found)
	if err := network(p, h, plan); err != nil {
		return nil, err
	}
	sockets(h, plan)
	if err := powers(p, h, ids, plan); err != nil {
		return nil, err
	}
	plan.Exec.Guard = guard(p, h, plan, found)
	plan.IDs = IDs{UIDs: ids.maps[0], GIDs: ids.maps[1], GrantUIDs: ids.grants[0], GrantGIDs: ids.grants[1]}
	plan.Filter = filter(plan, h)
	plan.Checks = checks(p, h, ids, plan)
	return plan, nil
}

// powers decides what programs may use and do beside files and the network.
func powers(p *policy.Policy, h *Host, ids identity, plan *Plan) error {
	for _, decide := range []func(*policy.Policy, *Host, *Plan) error{limits, cores, native, execute} {
		if err := decide(p, h, plan); err != nil {
			return err
		}
	}
	return userns(p, ids, plan)
}

// compileFiles compiles the view, keeps what it was compiled from, and says where the program's home is in it.
func compileFiles(p *policy.Policy, h *Host, ids identity, plan *Plan) (home string, err error) {
	home = "/home/" + ids.name
	if ids.shownUID == 0 {
		home = "/root"
	}
	guards, err := guarded(&p.Files, h)
	if err != nil {
		return "", err
	}
	req := compile.Request{
		Policy: p.Files, Tree: h.Tree, Hostname: Hostname, ResolvConf: resolvConf(&p.Network, h.Resolv),
		TmpfsSize: tmpfsSize(p.Limits.Memory), Guarded: guards,
		User: compile.Identity{
			UID: ids.shownUID, GID: ids.shownGID, Name: ids.name, Group: ids.group, Home: home, Privileged: h.Root, Apart: ids.own,
		},
	}
	plan.Kept = &Kept{req, connector(&p.Network, h.Self), p.Views, itemsOf(p, keyHideModules, p.Interpreters.HideModules), !p.Processes.Proc}
	if plan.View, err = compileGone(&plan.Kept.Request, plan.Kept.Connector, h); err != nil {
		return "", err
	}
	if plan.Kept.NoProc {
		if err := showsProcfs(plan.View, h.Tree.Mounts()); err != nil {
			return "", err
		}
	}
	if _, err := plan.View.Lookup(h.Tree, home); err != nil {
		home = "/tmp" // a grant takes the place of the home directory and does not have it
	}
	return home, nil
}

// searched are the grants. The base is not searched, because its files belong to the system.
func searched(p *policy.Policy, v *rootfs.View) []Search {
	var list []Search
	for _, m := range v.Mounts {
		if m.Kind == rootfs.MountBind && m.Source != "" && m.Dir && m.From != p.Files.Base.From && m.From != rootfs.FromDefault {
			list = append(list, Search{m.Source, m.Target, m.Writable})
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(s Search) bool { // files that another grant shows too
		return slices.ContainsFunc(list, func(o Search) bool {
			rel, below := strings.CutPrefix(s.Target, o.Target+"/")
			return below && s.Writable == o.Writable && s.Source == path.Join(o.Source, rel)
		})
	})
}

// resolvConf is the content of /etc/resolv.conf inside.
func resolvConf(n *netpolicy.Policy, host string) string {
	switch {
	case n.Mode == netpolicy.Host && host != "":
		return host
	case proxied(n.Mode) && n.Transparent:
		return "nameserver " + Resolver().String() + "\n" + outside(n.Mode, host)
	case proxied(n.Mode):
		return "# There are no name servers here: the proxy, see HTTPS_PROXY, resolves the names of allowed hosts.\n"
	}
	return "# There are no name servers here: the sandbox's network is " + n.Mode + ".\n"
}

// outside is the host's name servers as comments, for mode public. They do not make the resolver look misconfigured to somebody who
// reads the file.
func outside(mode, host string) string {
	if mode != netpolicy.Public {
		return ""
	}
	var b strings.Builder
	for line := range strings.Lines(host) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			fmt.Fprintf(&b, "# outside: nameserver %s\n", f[1])
		}
	}
	return b.String()
}

func execOf(p *policy.Policy, h *Host, id identity, dir, home string) Exec {
	e := Exec{
		UID: id.uid, GID: id.gid, OwnID: id.own, ShownUID: id.shownUID, ShownGID: id.shownGID, Dir: dir, Umask: umask,
		DropGroups: h.Setgroups,
		Env: map[string]string{
			"PATH": defaultEnv, "HOME": home, "USER": id.name, "LOGNAME": id.name, "LANG": "C.UTF-8",
		},
		EnvAllow: slices.Clone(p.Env.Allow), EnvDeny: slices.Clone(p.Env.Deny), EnvSet: maps.Clone(p.Env.Set), Redact: p.Env.Redact, NoSpawn: !p.Processes.Spawn, NoNative: !p.Processes.Native, NoProc: !p.Processes.Proc,
	}
	for _, f := range h.ProcFiles {
		switch {
		case slices.Contains(HiddenProc(), f):
			e.Hide = append(e.Hide, f)
		case slices.Contains(ReadonlyProc(), f):
			e.Readonly = append(e.Readonly, f)
		}
	}
	return e
}
