package rootfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// What a tmpfs gets where the policy gives no limits. Tools count on space in /tmp; memory is taken only when used.
const (
	defaultSize   = 1 << 30 // bytes
	defaultInodes = 262144
	minInodes     = 1024
	bytesPerInode = 4096 // a page: the least that a file with content takes
)

// fromDefault names, in Mount.From, what every sandbox has.
const fromDefault = "default"

// fromState is Mount.From of a mask that no policy asked for: a state directory is below it.
const fromState = "the state directory"

// addPolicy collects what the policy asks for.
func (c *compiler) addPolicy() error {
	p := c.Policy
	for _, g := range sortedGrants(p.Read) {
		if err := c.addGrant(g, classRead, true); err != nil {
			return err
		}
	}
	for _, g := range sortedGrants(p.Write) {
		if err := c.addGrant(g, classWrite, true); err != nil {
			return err
		}
	}
	if err := c.addWorkspace(p.Workspace); err != nil {
		return err
	}
	binds := slices.Clone(p.Binds)
	slices.SortFunc(binds, func(a, b Bind) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Source, b.Source), cmp.Compare(a.From, b.From))
	})
	for _, b := range binds {
		if err := c.addBind(b, true); err != nil {
			return err
		}
	}
	tmpfs := slices.Clone(p.Tmpfs)
	slices.SortFunc(tmpfs, func(a, b Tmpfs) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.From, b.From)) })
	for _, t := range tmpfs {
		if err := checkTarget(Grant{t.Path, t.From}); err != nil {
			return err
		}
		c.items = append(c.items, item{Mount: c.newTmpfs(t), class: classTmpfs, asked: t.Path})
	}
	return nil
}

// addGrant shows a host path at its own place: where its links lead, and by the name the policy gives.
func (c *compiler) addGrant(g Grant, cl class, maySkip bool) error {
	if g.Path == "/" {
		return invalid(`files.base = "host" shows the host's root read-only`, `%s "/": the root itself cannot be granted`, g.From)
	}
	if err := checkTarget(g); err != nil {
		return err
	}
	t, ok, err := c.source(g, maySkip)
	if !ok {
		return err
	}
	for _, l := range t.links {
		if c.inBase(l.place) {
			continue // what is there, a link or not, is the base's
		}
		c.links[l.place] = l.text
		c.addEntry(Entry{Path: l.place, Kind: EntrySymlink, Content: l.text})
	}
	c.addBindItem(t, t.real, cl, cl == classWrite, g)
	if t.real != g.Path {
		c.names = append(c.names, name{g.Path, t.real, g.From, t.info.Mode.IsDir()})
	}
	return nil
}

func (c *compiler) addBind(b Bind, maySkip bool) error {
	if err := checkTarget(Grant{b.Target, b.From}); err != nil {
		return err
	}
	t, ok, err := c.source(Grant{b.Source, b.From}, maySkip)
	if !ok {
		return err
	}
	c.addBindItem(t, b.Target, classBind, b.Writable, Grant{b.Target, b.From})
	return nil
}

func (c *compiler) addBindItem(t trail, target string, cl class, writable bool, g Grant) {
	m := Mount{
		Kind: MountBind, Source: t.real, Target: target, Writable: writable, Dir: t.info.Mode.IsDir(), From: g.From,
	}
	c.items = append(c.items, item{Mount: m, class: cl, asked: g.Path})
	c.grants = append(c.grants, grant{g.Path, t.real, g.From})
}

func (c *compiler) addWorkspace(w *Workspace) error {
	if w == nil {
		return nil
	}
	perExec := w.Lifetime == "exec"
	if w.Source == "tmpfs" || w.Source == "disk" {
		if err := checkTarget(Grant{w.Path, w.From}); err != nil {
			return err
		}
		m := c.newTmpfs(Tmpfs{Path: w.Path, Size: w.Size, Lifetime: w.Lifetime, From: w.From})
		m.Mode = 0o755
		c.items = append(c.items, item{Mount: m, class: classTmpfs, asked: w.Path})
		return nil
	}
	if perExec {
		return invalid(`set workspace.source = "tmpfs"`,
			`%s: lifetime = "exec" needs a workspace in memory, not the host directory %q`, w.From, w.Source)
	}
	// A sandbox without its workspace is no use, so `missing = "skip"` does not apply.
	at := len(c.items)
	var err error
	if w.Path == w.Source {
		err = c.addGrant(Grant{w.Source, w.From}, classWrite, false)
	} else {
		err = c.addBind(Bind{Source: w.Source, Target: w.Path, Writable: true, From: w.From}, false)
	}
	if err == nil && !c.items[at].Dir {
		return invalid("", "%s: workspace %q is not a directory", w.From, w.Source)
	}
	return err
}

// source resolves a host path that is to be shown. ok is false if it is left out, or refused with an error.
func (c *compiler) source(g Grant, maySkip bool) (t trail, ok bool, err error) {
	if err := checkPath(g); err != nil {
		return t, false, err
	}
	t, err = follow(c.tree, g.Path)
	if l, ok := c.hands.first(t.links); ok {
		return t, false, redirected(g.From, g.Path, l, t.real)
	}
	if k := kernelPlace(t.places(g.Path)...); k != "" {
		return t, false, invalid("", "%s %q: nothing that lies in or goes through the host's %s can be shown", g.From, g.Path, k)
	}
	if t.real == "/" {
		return t, false, invalid(`files.base = "host" shows the host's root read-only`,
			"%s %q: the host's root cannot be shown: it holds /proc and /dev", g.From, g.Path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		msg := fmt.Sprintf("%s %q does not exist", g.From, g.Path)
		if len(t.links) > 0 {
			msg = fmt.Sprintf("%s %q leads to %q, which does not exist", g.From, g.Path, t.real)
		}
		if maySkip && c.Policy.Missing == "skip" {
			c.skipped = append(c.skipped, msg)
			return t, false, nil
		}
		return t, false, &Error{Code: codeMissing, Message: msg, Hint: `create it, or set files.missing = "skip"`}
	}
	if err != nil {
		return t, false, &Error{Code: codeMissing, Message: fmt.Sprintf("%s %q: %v", g.From, g.Path, err)}
	}
	if t.info.Mode&fs.ModeDevice != 0 {
		return t, false, invalid("the usual devices are in the sandbox's own /dev", "%s %q is a device", g.From, g.Path)
	}
	return t, true, nil
}

// kernelPlace names the one of /proc, /dev and /sys that one of the paths lies in. Other code mounts these, and what
// the host has there is a way out of the sandbox.
func kernelPlace(paths ...string) string {
	for _, p := range paths {
		for _, dir := range []string{"/proc", "/dev", "/sys"} {
			if within(p, dir) {
				return dir
			}
		}
	}
	return ""
}

func checkPath(g Grant) error {
	if !clean(g.Path) {
		return invalid("", "%s %q is not an absolute, clean path", g.From, g.Path)
	}
	return nil
}

// checkTarget refuses a path at which nothing may be mounted.
func checkTarget(g Grant) error {
	if err := checkPath(g); err != nil {
		return err
	}
	if g.Path == "/" {
		return invalid("name a directory below it", `%s "/": the root itself cannot be replaced or hidden`, g.From)
	}
	if k := kernelPlace(g.Path); k != "" {
		return invalid("", "%s %q: %s is the sandbox's own", g.From, g.Path, k)
	}
	return nil
}

// newTmpfs is an empty directory that the program can write to.
func (c *compiler) newTmpfs(t Tmpfs) Mount {
	m := Mount{
		Kind: MountTmpfs, Target: t.Path, Dir: true, Size: t.Size, Inodes: t.Inodes, Mode: 0o755, Owned: true, From: t.From,
		PerExec: t.Lifetime == "exec",
	}
	if t.Path == "/tmp" || t.Path == "/var/tmp" {
		m.Mode = 0o1777
	}
	if m.Inodes == 0 {
		m.Inodes = defaultInodes
		if m.Size > 0 {
			m.Inodes = min(max(m.Size/bytesPerInode, minInodes), defaultInodes)
		}
	}
	if m.Size == 0 {
		m.Size = cmp.Or(c.TmpfsSize, defaultSize)
	}
	return m
}

// addDefaults adds what every sandbox has: /tmp, /var/tmp, /run and a home directory.
func (c *compiler) addDefaults() error {
	c.addEntry(Entry{Path: "/run", Kind: EntryDir, Mode: 0o755})
	c.addDefaultTmpfs(Tmpfs{Path: "/tmp", From: fromDefault}, 0o1777)
	if c.ownVarTmp() {
		c.addEntry(Entry{Path: "/var/tmp", Kind: EntrySymlink, Content: "/tmp"})
	} else {
		c.addDefaultTmpfs(Tmpfs{Path: "/var/tmp", From: fromDefault}, 0o1777)
	}
	home := c.User.Home
	if clean(home) && home != "/" && kernelPlace(home) == "" {
		t := Tmpfs{From: fromDefault}
		if c.Policy.Home != nil {
			t = *c.Policy.Home
		}
		t.Path = home
		c.addDefaultTmpfs(t, 0o700)
	}
	return nil
}

func (c *compiler) addDefaultTmpfs(t Tmpfs, mode uint32) {
	m := c.newTmpfs(t)
	m.Mode, m.Owned = mode, mode == 0o700
	c.items = append(c.items, item{Mount: m, class: classDefault, asked: t.Path})
}

// ownVarTmp reports whether /var/tmp can be a link to /tmp: /var is the sandbox's own and nothing is mounted there.
func (c *compiler) ownVarTmp() bool {
	if e, ok := c.entries["/var"]; ok && e.Kind != EntryDir {
		return false
	}
	taken := []string{c.User.Home}
	for _, it := range c.items {
		if it.class == classBase && it.Target == "/var" {
			return false
		}
		taken = append(taken, it.Target)
	}
	for _, n := range c.names {
		taken = append(taken, n.written)
	}
	return !slices.ContainsFunc(taken, func(p string) bool { return within(p, "/var/tmp") })
}

func sortedGrants(list []Grant) []Grant {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Grant) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.From, b.From)) })
	return slices.Compact(list)
}
