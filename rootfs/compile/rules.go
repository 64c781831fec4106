package compile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// What a tmpfs gets where the policy gives no limits. Tools count on space in /tmp; memory is taken only when used.
const (
	defaultSize   = 1 << 30 // bytes
	defaultInodes = 262144
	minInodes     = 1024
	bytesPerInode = 4096 // a page: the least that a file with content takes
)

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
	slices.SortFunc(binds, func(a, b rootfs.Bind) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Source, b.Source), cmp.Compare(a.From, b.From))
	})
	for _, b := range binds {
		if err := c.addBind(b, true); err != nil {
			return err
		}
	}
	tmpfs := slices.Clone(p.Tmpfs)
	slices.SortFunc(tmpfs, func(a, b rootfs.Tmpfs) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.From, b.From)) })
	for _, t := range tmpfs {
		if err := checkTarget(rootfs.Grant{Path: t.Path, From: t.From}); err != nil {
			return err
		}
		c.items = append(c.items, item{Mount: c.newTmpfs(t), class: classTmpfs, asked: t.Path})
	}
	return nil
}

// addGrant shows a host path at the same path inside: where its links lead, and by the name the policy gives.
func (c *compiler) addGrant(g rootfs.Grant, cl class, maySkip bool) error {
	if g.Path == "/" {
		return rootfs.Invalid(`files.base = "host" shows the host's root read-only`, `%s "/": the root itself cannot be granted`, g.From)
	}
	if err := checkTarget(g); err != nil {
		return err
	}
	t, ok, err := c.source(g, maySkip)
	if !ok {
		return err
	}
	for _, l := range t.Links {
		if c.inBase(l.At) {
			continue // what is there, a link or not, is the base's
		}
		c.links[l.At] = l.Text
		c.addEntry(rootfs.Entry{Path: l.At, Kind: rootfs.EntrySymlink, Content: l.Text})
	}
	c.addBindItem(t, t.Real, cl, cl == classWrite, g)
	if t.Real != g.Path {
		c.names = append(c.names, name{g.Path, t.Real, g.From, t.Info.Mode.IsDir()})
	}
	return nil
}

func (c *compiler) addBind(b rootfs.Bind, maySkip bool) error {
	if err := checkTarget(rootfs.Grant{Path: b.Target, From: b.From}); err != nil {
		return err
	}
	t, ok, err := c.source(rootfs.Grant{Path: b.Source, From: b.From}, maySkip)
	if !ok {
		return err
	}
	c.addBindItem(t, b.Target, classBind, b.Writable, rootfs.Grant{Path: b.Target, From: b.From})
	return nil
}

func (c *compiler) addBindItem(t hostfs.Trail, target string, cl class, writable bool, g rootfs.Grant) {
	m := rootfs.Mount{
		Kind: rootfs.MountBind, Source: t.Real, Target: target, Writable: writable, Dir: t.Info.Mode.IsDir(), From: g.From,
	}
	c.items = append(c.items, item{Mount: m, class: cl, asked: g.Path})
	c.grants = append(c.grants, grant{g.Path, t.Real, g.From})
}

func (c *compiler) addWorkspace(w *rootfs.Workspace) error {
	if w == nil {
		return nil
	}
	perExec := w.Lifetime == "exec"
	if w.Source == rootfs.SourceTmpfs || w.Source == rootfs.SourceDisk {
		if err := checkTarget(rootfs.Grant{Path: w.Path, From: w.From}); err != nil {
			return err
		}
		m := c.newTmpfs(rootfs.Tmpfs{Path: w.Path, Size: w.Size, Lifetime: w.Lifetime, From: w.From})
		m.Mode = 0o755
		c.items = append(c.items, item{Mount: m, class: classTmpfs, asked: w.Path})
		return nil
	}
	if perExec {
		return rootfs.Invalid(`set workspace.source = "tmpfs"`,
			`%s: lifetime = "exec" needs a workspace in memory, not the host directory %q`, w.From, w.Source)
	}
	// A sandbox without its workspace is no use, so `missing = "skip"` does not apply.
	at := len(c.items)
	var err error
	if w.Path == w.Source {
		err = c.addGrant(rootfs.Grant{Path: w.Source, From: w.From}, classWrite, false)
	} else {
		err = c.addBind(rootfs.Bind{Source: w.Source, Target: w.Path, Writable: true, From: w.From}, false)
	}
	if err == nil && !c.items[at].Dir {
		return rootfs.Invalid("", "%s: workspace %q is not a directory", w.From, w.Source)
	}
	return err
}

// source resolves a host path that is to be shown. ok is false if it is left out, or refused with an error.
func (c *compiler) source(g rootfs.Grant, maySkip bool) (t hostfs.Trail, ok bool, err error) {
	if err := checkPath(g); err != nil {
		return t, false, err
	}
	t, err = hostfs.Follow(c.tree, g.Path)
	if l, ok := c.writables.First(t.Links); ok {
		return t, false, rootfs.Redirected(g.From, g.Path, l, t.Real)
	}
	if k := pathname.KernelPlace(t.Touches(g.Path)...); k != "" {
		return t, false, rootfs.Invalid("", "%s %q: nothing that lies in or goes through the host's %s can be shown", g.From, g.Path, k)
	}
	if t.Real == "/" {
		return t, false, rootfs.Invalid(`files.base = "host" shows the host's root read-only`,
			"%s %q: the host's root cannot be shown: it holds /proc and /dev", g.From, g.Path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		msg := fmt.Sprintf("%s %q does not exist", g.From, g.Path)
		if len(t.Links) > 0 {
			msg = fmt.Sprintf("%s %q leads to %q, which does not exist", g.From, g.Path, t.Real)
		}
		if maySkip && c.Policy.Missing == "skip" {
			c.skipped = append(c.skipped, msg)
			return t, false, nil
		}
		return t, false, fault.New(fault.GrantMissing, `create it, or set files.missing = "skip"`, "%s", msg)
	}
	if err != nil {
		return t, false, fault.New(fault.GrantMissing, "", "%s %q: %w", g.From, g.Path, err)
	}
	if t.Info.Mode&fs.ModeDevice != 0 {
		return t, false, rootfs.Invalid("the usual devices are in the sandbox's own /dev", "%s %q is a device", g.From, g.Path)
	}
	return t, true, nil
}

func checkPath(g rootfs.Grant) error {
	if !pathname.Clean(g.Path) {
		return rootfs.Invalid("", "%s %q is not an absolute, clean path", g.From, g.Path)
	}
	return nil
}

// checkTarget refuses a path at which nothing may be mounted.
func checkTarget(g rootfs.Grant) error {
	if err := checkPath(g); err != nil {
		return err
	}
	if g.Path == "/" {
		return rootfs.Invalid("name a directory below it", `%s "/": the root itself cannot be replaced or hidden`, g.From)
	}
	if k := pathname.KernelPlace(g.Path); k != "" {
		return rootfs.Invalid("", "%s %q: %s is the sandbox's own", g.From, g.Path, k)
	}
	return nil
}

// newTmpfs is an empty directory that the program can write to.
func (c *compiler) newTmpfs(t rootfs.Tmpfs) rootfs.Mount {
	m := rootfs.Mount{
		Kind: rootfs.MountTmpfs, Target: t.Path, Dir: true, Size: t.Size, Inodes: t.Inodes, Mode: 0o755, Owned: true, From: t.From,
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
	c.addEntry(rootfs.Entry{Path: "/run", Kind: rootfs.EntryDir, Mode: 0o755})
	c.addDefaultTmpfs(rootfs.Tmpfs{Path: "/tmp", From: rootfs.FromDefault}, 0o1777)
	if c.ownVarTmp() {
		c.addEntry(rootfs.Entry{Path: "/var/tmp", Kind: rootfs.EntrySymlink, Content: "/tmp"})
	} else {
		c.addDefaultTmpfs(rootfs.Tmpfs{Path: "/var/tmp", From: rootfs.FromDefault}, 0o1777)
	}
	home := c.User.Home
	if pathname.Clean(home) && home != "/" && pathname.KernelPlace(home) == "" {
		t := rootfs.Tmpfs{From: rootfs.FromDefault}
		if c.Policy.Home != nil {
			t = *c.Policy.Home
		}
		t.Path = home
		c.addDefaultTmpfs(t, 0o700)
	}
	return nil
}

func (c *compiler) addDefaultTmpfs(t rootfs.Tmpfs, mode uint32) {
	m := c.newTmpfs(t)
	m.Mode, m.Owned = mode, mode == 0o700
	c.items = append(c.items, item{Mount: m, class: classDefault, asked: t.Path})
}

// ownVarTmp reports whether /var/tmp can be a link to /tmp: /var is the sandbox's own and nothing is mounted there.
func (c *compiler) ownVarTmp() bool {
	if e, ok := c.entries["/var"]; ok && e.Kind != rootfs.EntryDir {
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
	return !slices.ContainsFunc(taken, func(p string) bool { return pathname.Within(p, "/var/tmp") })
}

func sortedGrants(list []rootfs.Grant) []rootfs.Grant {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b rootfs.Grant) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.From, b.From)) })
	return slices.Compact(list)
}
