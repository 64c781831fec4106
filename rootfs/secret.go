package rootfs

import (
	"fmt"
	"slices"
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
	if err != nil || len(secrets) == 0 {
		return err
	}
	for _, g := range c.grants {
		for up := range ups(g.real) {
			if s, ok := secrets[up]; ok && !c.isDenied(g.real) {
				return secretError(g, s, "lies inside")
			}
		}
	}
	if err := c.checkSecretLinks(linked, secrets, shown); err != nil {
		return err
	}
	return c.checkBaseSecrets(secrets)
}

// secrets collects those that no deny hides, by real path, and the files among them that have other names. No grant may
// hold one.
func (c *compiler) secrets(shown map[string]grant) (secrets map[string]Grant, linked map[inode]string, err error) {
	secrets, linked = map[string]Grant{}, map[inode]string{}
	for _, s := range sortedGrants(c.Policy.Secrets) {
		if err := checkPath(s); err != nil {
			return nil, nil, err
		}
		t, err := follow(c.tree, s.Path)
		if c.isDenied(t.real) {
			continue
		}
		for up := range ups(t.real) {
			if g, ok := shown[up]; ok {
				return nil, nil, secretError(g, s, "holds")
			}
		}
		secrets[t.real] = s
		if err == nil && t.info.Mode.IsRegular() && t.info.Nlink > 1 {
			linked[inode{t.info.Dev, t.info.Ino}] = t.real
		}
	}
	return secrets, linked, nil
}

// checkSecretLinks looks for further hard links of secret files.
func (c *compiler) checkSecretLinks(linked map[inode]string, secrets map[string]Grant, shown map[string]grant) error {
	first, secret := "", ""
	c.eachHardLink(linked, func(host, real string) {
		if !c.isDenied(host) && (first == "" || host < first) {
			first, secret = host, real
		}
	})
	for up := range ups(first) {
		if g, ok := shown[up]; ok && first != "" {
			return secretError(g, secrets[secret], fmt.Sprintf("holds, as %q,", first))
		}
	}
	return nil
}

// checkBaseSecrets looks for secrets that the base shows.
func (c *compiler) checkBaseSecrets(secrets map[string]Grant) error {
	var seen []string
	names := c.scene.hostNames()
	for real := range secrets {
		for range names(real) {
			seen = append(seen, real)
		}
	}
	for _, m := range c.scene.mounts {
		for up := range ups(m.Source) {
			if _, ok := secrets[up]; ok && m.Source != "" {
				seen = append(seen, up)
			}
		}
	}
	if len(seen) == 0 {
		return nil
	}
	s := secrets[slices.Min(seen)]
	return &Error{
		Code:    codeSecret,
		Message: fmt.Sprintf("files.base %q (%s) shows the secret %q (%s)", c.Policy.Base.Kind, c.baseFrom(), s.Path, s.From),
		Hint:    fmt.Sprintf("deny it: files.deny = [%q]", s.Path),
	}
}

// isDenied reports whether a deny names the host path or a directory above it.
func (c *compiler) isDenied(host string) bool {
	for up := range ups(host) {
		if _, ok := c.denied[up]; ok {
			return true
		}
	}
	return false
}

func secretError(g grant, s Grant, how string) *Error {
	return &Error{
		Code:    codeSecret,
		Message: fmt.Sprintf("%s %q %s the secret %q (%s)", g.from, g.path, how, s.Path, s.From),
		Hint:    "grant less, or deny the secret",
	}
}
