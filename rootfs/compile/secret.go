package compile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// checkSecrets refuses a policy that shows a secret, unless a deny hides it.
func (c *compiler) checkSecrets() error {
	shown := map[string]grant{}
	for _, g := range c.grants {
		if old, ok := shown[g.real]; !ok || g.from < old.from {
			shown[g.real] = g
		}
	}
	secrets, linked, err := c.secrets(shown)
	if err != nil {
		return err
	}
	for _, g := range c.grants {
		for up := range pathname.Ups(g.real) {
			if s, ok := secrets[up]; ok && !c.isDenied(g.real) {
				return secretError(g, s, "lies inside")
			}
		}
	}
	if err := c.checkSecretLinks(linked, shown); err != nil {
		return err
	}
	return c.checkBaseSecrets(secrets)
}

// secrets collects those that no deny hides, under every host path that mounts give them, and all files that have other
// names: a deny of a directory does not hide these. No grant may hold a secret.
func (c *compiler) secrets(shown map[string]grant) (secrets, linked map[string]rootfs.Grant, err error) {
	secrets, linked = map[string]rootfs.Grant{}, map[string]rootfs.Grant{}
	for _, s := range sortedGrants(c.Policy.Secrets) {
		if err := checkPath(s); err != nil {
			return nil, nil, err
		}
		t, missing := hostfs.Follow(c.tree, s.Path)
		l, redirects := c.writables.First(t.Links)
		if redirects {
			t.Real = l.At // what a program may have made says nothing of where the secret is
		}
		names := append([]string{t.Real}, c.locations.Parts(t.Real)...)
		for _, name := range slices.DeleteFunc(names, c.isDenied) {
			if g, how, ok := holder(shown, t.Real, name); ok {
				return nil, nil, secretError(g, s, how)
			}
			secrets[name] = s
		}
		if missing == nil && !redirects && !t.Info.Mode.IsDir() && t.Info.Nlink > 1 {
			linked[t.Real] = s
		}
	}
	return secrets, linked, nil
}

// holder is the grant that shows a name of a secret.
func holder(shown map[string]grant, real, name string) (grant, string, bool) {
	for up := range pathname.Ups(name) {
		if g, ok := shown[up]; ok {
			how := "holds"
			if name != real {
				how = fmt.Sprintf("holds, as %q,", name)
			}
			return g, how, true
		}
	}
	return grant{}, "", false
}

// checkSecretLinks looks for further hard links of secret files.
func (c *compiler) checkSecretLinks(linked map[string]rootfs.Grant, shown map[string]grant) error {
	wanted := map[hostfs.Inode]string{}
	for _, real := range slices.Sorted(maps.Keys(linked)) {
		if info, err := c.tree.Lstat(real); err == nil {
			wanted[info.Inode()] = real
		}
	}
	first, secret := "", ""
	c.eachHardLink(wanted, func(host, real string) {
		if !c.isDenied(host) && (first == "" || host < first) {
			first, secret = host, real
		}
	})
	if first == "" {
		return nil
	}
	if g, how, ok := holder(shown, secret, first); ok {
		return secretError(g, linked[secret], how)
	}
	return c.baseError(linked[secret], fmt.Sprintf("shows, as %q,", first))
}

// checkBaseSecrets looks for secrets that the base shows.
func (c *compiler) checkBaseSecrets(secrets map[string]rootfs.Grant) error {
	var seen []string
	names := c.index.HostNames()
	for real := range secrets {
		for range names(real) {
			seen = append(seen, real)
		}
	}
	for _, m := range c.index.Mounts {
		for up := range pathname.Ups(m.Source) {
			if _, ok := secrets[up]; ok && m.Source != "" {
				seen = append(seen, up)
			}
		}
	}
	if len(seen) == 0 {
		return nil
	}
	s := secrets[slices.Min(seen)]
	return c.baseError(s, "shows")
}

func (c *compiler) baseError(s rootfs.Grant, how string) *fault.Error {
	return fault.New(fault.GrantHoldsSecret, fmt.Sprintf("deny it: files.deny = [%q]", s.Path),
		"files.base %q (%s) %s the secret %q (%s)", c.Policy.Base.Kind, c.baseFrom(), how, s.Path, s.From)
}

// isDenied reports whether a deny names the host path or a directory above it.
func (c *compiler) isDenied(host string) bool {
	for up := range pathname.Ups(host) {
		if _, ok := c.denied[up]; ok {
			return true
		}
	}
	return false
}

func secretError(g grant, s rootfs.Grant, how string) *fault.Error {
	return fault.New(fault.GrantHoldsSecret, "grant less, or deny the secret", "%s %q %s the secret %q (%s)", g.from, g.path, how, s.Path, s.From)
}
