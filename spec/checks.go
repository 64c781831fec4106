package spec

import (
	"maps"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// checks is what the checks at the start have to prove. It comes from the plan, not from the mounts that were made, because the code
// that makes them may be wrong.
func checks(p *policy.Policy, h *Host, id identity, plan *Plan) hooks.Subject {
	s := hooks.Subject{
		Network: plan.Network != netpolicy.Host, EnvAllow: plan.Exec.EnvAllow, EnvDeny: plan.Exec.EnvDeny, Affinity: plan.Exec.Affinity > 0, Userns: plan.Exec.Userns, NoSpawn: plan.Exec.NoSpawn, NoProc: plan.Exec.NoProc, Unlisted: plan.unlisted,
	}
	s.Env = slices.Collect(maps.Keys(plan.Exec.Env))
	for name := range plan.Exec.EnvSet {
		if !slices.Contains(s.Env, name) {
			s.Env = append(s.Env, name)
		}
	}
	slices.Sort(s.Env)
	s.Forwards = plan.Relay.ports()
	s.ID, s.Owner, s.MayOwn = id.onHost(h)
	addGrants(&s, plan.View)
	addAbsent(&s, plan.View)
	for _, g := range plan.View.Gone {
		s.Paths = append(s.Paths, hooks.Path{Kind: hooks.Gone, Inside: g.Inside, Host: g.Host})
	}
	addSecrets(&s, &p.Files, h.Tree, plan.View)
	for _, f := range plan.Exec.Hide {
		s.Paths = append(s.Paths, hooks.Path{Kind: hooks.HiddenProc, Inside: f, Host: f})
	}
	for _, f := range plan.Exec.Readonly {
		s.Paths = append(s.Paths, hooks.Path{Kind: hooks.ReadOnlyProc, Inside: f, Host: f})
	}
	for _, dir := range []string{"/", "/dev"} {
		s.Paths = append(s.Paths, hooks.Path{Kind: hooks.ReadOnlyOwn, Inside: dir, Dir: true})
	}
	s.Paths = append(s.Paths, foreign(p, h.Tree, plan)...)
	return s
}

func addGrants(s *hooks.Subject, v *rootfs.View) {
	grants, cover := 0, v.ByTarget()
	for _, m := range v.Mounts {
		if m.Pin { // it shows no additional file, and is hidden itself
			continue
		}
		p := hooks.Path{Inside: m.Target, Host: m.Source, Dir: m.Dir, Idmapped: m.Idmapped, Overlay: len(m.Without) > 0}
		switch {
		case m.Kind == rootfs.MountMask:
			p.Kind, p.Host, p.Empty = hooks.Mask, cover.HostPath(m.Target), m.Empty
			s.Paths = append(s.Paths, p)
			continue
		case m.Kind == rootfs.MountTmpfs && !writableTmpfs(m):
			continue
		case m.Kind == rootfs.MountTmpfs, m.Writable:
			p.Kind, p.NoExec = hooks.WritableGrant, m.NoExec
		case m.Source == "":
			p.Kind = hooks.ReadOnlyOwn
		}
		if grants++; grants > hooks.MaxGrants {
			s.Omitted++
			continue
		}
		s.Paths = append(s.Paths, p)
	}
}

// addAbsent adds denied paths that do not exist. Their check is not_tested, and the result has to say so.
func addAbsent(s *hooks.Subject, v *rootfs.View) {
	for _, d := range v.Absent {
		s.Paths = append(s.Paths, hooks.Path{Kind: hooks.Mask, Inside: d.Inside, Host: d.Host, Empty: d.Empty})
	}
}

// addSecrets adds each secret under every path that the view could have for it: its own, and its paths in grants around it. It also
// adds the files that denies name, and those of hidden modules.
func addSecrets(s *hooks.Subject, p *rootfs.Policy, tree hostfs.Tree, v *rootfs.View) {
	if len(p.Secrets)+len(p.Denies())+len(p.Gone) == 0 {
		return
	}
	for _, g := range p.Gone {
		s.Denied = append(s.Denied, g.Path)
	}
	follow := v.Follower(tree)
	for _, deny := range p.Denies() {
		real, _ := follow(deny.From, deny.Path)                                                       // of a symlink that a program may have made, the symlink itself
		if !slices.Contains([]string{"/dev", "/proc", "/sys"}, "/"+strings.SplitN(real, "/", 3)[1]) { // these directories are the sandbox's own
			s.Denied = append(s.Denied, real)
		}
	}
	for _, secret := range p.Secrets {
		real, err := follow(secret.From, secret.Path)
		list := append(names(v, real), real)
		if err == nil { // otherwise a program may have made the symlink
			list = append(list, secret.Path)
		}
		slices.Sort(list)
		for _, name := range slices.Compact(list) {
			s.Paths = append(s.Paths, hooks.Path{Kind: hooks.Secret, Inside: name, Host: real})
		}
	}
}

// names are the paths inside at which binds could show a host path, with or without masks.
func names(v *rootfs.View, host string) []string {
	var list []string
	for _, m := range v.Mounts {
		if m.Kind != rootfs.MountBind || m.Source == "" {
			continue
		}
		if pathname.Within(host, m.Source) {
			list = append(list, pathname.Rebase(host, m.Source, m.Target))
		}
	}
	return list
}
