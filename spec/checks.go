package spec

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs"
)

// checks says what has to be proven of a sandbox at its start. It is made of what was decided, not of what is then
// mounted: whoever builds may be wrong.
func checks(p *Policy, h *Host, id identity, plan *Plan) hooks.Subject {
	s := hooks.Subject{
		Network: plan.Network != netpolicy.Host, EnvAllow: plan.Exec.EnvAllow, Affinity: plan.Exec.Affinity > 0,
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
	grants, cover := 0, CoverOf(v)
	for _, m := range v.Mounts {
		if m.Pin { // it shows nothing that is not there anyway, and is nowhere to be seen
			continue
		}
		p := hooks.Path{Inside: m.Target, Host: m.Source, Dir: m.Dir, Idmapped: m.Idmapped}
		switch {
		case m.Kind == rootfs.MountMask:
			p.Kind, p.Host = hooks.Mask, cover.HostPath(m.Target)
			s.Paths = append(s.Paths, p)
			continue
		case m.Kind == rootfs.MountTmpfs && !writableTmpfs(m):
			continue
		case m.Kind == rootfs.MountTmpfs, m.Writable:
			p.Kind = hooks.WritableGrant
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

// addAbsent adds what is denied and does not exist: nothing can be shown of it, and that has to be said.
func addAbsent(s *hooks.Subject, v *rootfs.View) {
	for _, d := range v.Absent {
		s.Paths = append(s.Paths, hooks.Path{Kind: hooks.Mask, Inside: d.Inside, Host: d.Host})
	}
}

// addSecrets adds each secret under every name that the view could have for it: its own, and those that the grants which
// hold it give it, and the files that denies mean.
func addSecrets(s *hooks.Subject, p *rootfs.Policy, tree rootfs.Tree, v *rootfs.View) {
	if len(p.Secrets)+len(p.Deny) == 0 {
		return
	}
	follow := v.Follower(tree)
	for _, deny := range p.Deny {
		real, _ := follow(deny.From, deny.Path)                                                       // of a link that a program may have made, the link
		if !slices.Contains([]string{"/dev", "/proc", "/sys"}, "/"+strings.SplitN(real, "/", 3)[1]) { // what is there is the sandbox's own
			s.Denied = append(s.Denied, real)
		}
	}
	for _, secret := range p.Secrets {
		real, err := follow(secret.From, secret.Path)
		list := append(names(v, real), real)
		if err == nil { // else a program may have made what the name leads to
			list = append(list, secret.Path)
		}
		slices.Sort(list)
		for _, name := range slices.Compact(list) {
			s.Paths = append(s.Paths, hooks.Path{Kind: hooks.Secret, Inside: name, Host: real})
		}
	}
}

// names are those that binds could have for a host path, masks or not.
func names(v *rootfs.View, host string) []string {
	var list []string
	for _, m := range v.Mounts {
		if m.Kind != rootfs.MountBind || m.Source == "" {
			continue
		}
		if rel, err := filepath.Rel(m.Source, host); err == nil && filepath.IsLocal(rel) {
			list = append(list, filepath.Join(m.Target, rel))
		}
	}
	return list
}
