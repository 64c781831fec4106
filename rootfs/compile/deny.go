package compile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// denier hides what the policy denies under every name that the view has for it.
type denier struct {
	*compiler
	hosts    map[string]string        // host paths to hide → the rule
	missing  map[string]string        // host paths that do not exist
	names    map[string]string        // paths inside: every mount at or below one is hidden
	empty    map[string]bool          // rules of which the masks read as empty
	absentBy map[string]bool          // of these, rules of what should be absent
	gone     map[string]bool          // paths inside that are absent
	masks    map[string]*rootfs.Mount // by target
	shown    func(host string) iter.Seq2[string, *rootfs.Mount]
	sources  map[string]bool // of all binds, and all directories above
	workdir  string          // inside
}

func (c *compiler) addDenies() error {
	d := &denier{
		compiler: c, hosts: c.denied, missing: map[string]string{}, names: map[string]string{}, masks: map[string]*rootfs.Mount{}, empty: map[string]bool{}, absentBy: map[string]bool{}, gone: map[string]bool{},
		shown: c.index.HostNames(), sources: map[string]bool{}, workdir: c.startDir(),
	}
	for _, m := range c.index.Mounts {
		for up := m.Source; up != "" && !d.sources[up]; up = pathname.Parent(up) {
			d.sources[up] = true
		}
	}
	for _, g := range c.Policy.DenyEmpty {
		d.empty[g.From] = true
	}
	for _, g := range sortedGrants(c.Policy.Denies()) {
		if err := d.add(g); err != nil {
			return err
		}
	}
	for _, g := range sortedGrants(c.Policy.Gone) {
		d.empty[g.From], d.absentBy[g.From] = true, true
		if _, err := d.tree.Lstat(g.Path); err == nil {
			d.rule(d.hosts, g.Path, g.From)
		}
	}
	for _, p := range c.Hidden {
		_, err := d.tree.Lstat(p)
		d.note(p, rootfs.FromState, err)
	}
	d.addOthers()
	d.addHardLinks()
	d.findMasks()
	d.findGone()
	d.mount()
	d.findAbsent()
	for host, from := range d.missing {
		d.rule(c.denied, host, from) // so that a deny covers a secret that does not exist yet
	}
	c.present = slices.DeleteFunc(c.present, func(p rootfs.Denied) bool {
		m := c.index.Mounts[p.Inside]
		return m == nil || m.Kind != rootfs.MountMask // it lies below another mask
	})
	byInside(c.absent)
	byInside(c.present)
	return nil
}

func byInside(list []rootfs.Denied) {
	slices.SortFunc(list, func(a, b rootfs.Denied) int { return cmp.Compare(a.Inside, b.Inside) })
}

// add finds what a deny names: on the host, and inside, where a bind may have given the name to something else.
func (d *denier) add(g rootfs.Grant) error {
	if err := checkTarget(g); err != nil {
		return err
	}
	t, err := hostfs.Follow(d.tree, g.Path)
	names := []string{g.Path, t.Real}
	switch _, redirects := d.writables.First(t.Links); {
	case redirects:
		d.addLinks(t.Links, g)
		d.addTarget(t.Real, err, g)
		names = names[:1]
	case pathname.KernelPlace(t.Real) != "":
		return nil // a link leads there, out of all that a grant shows: there is nothing to hide
	case pathname.KernelPlace(t.Touches(g.Path)...) != "" || t.Real == "/":
		return rootfs.Invalid("", "%s %q leads to %q, which cannot be denied", g.From, g.Path, t.Real)
	default:
		d.note(t.Real, g.From, err)
	}
	if errors.Is(err, pathname.ErrLoop) {
		d.note(g.Path, g.From, err) // the loop may be a program's, and may be gone when its sandbox runs
	}
	for _, inside := range pathname.SortedUnique(names) {
		if err := d.addInside(g, inside); err != nil {
			return err
		}
	}
	return nil
}

func (d *denier) addInside(g rootfs.Grant, inside string) error {
	spot, links, err := d.index.Trace(inside)
	links = d.index.OnHost(links)
	_, redirects := d.writables.First(links)
	if redirects {
		d.addLinks(links, g)
	}
	switch {
	case errors.Is(err, pathname.ErrLoop) || pathname.KernelPlace(spot.Path) != "":
	case redirects && spot.Kind == rootfs.PlaceHost:
		d.addTarget(spot.Host, err, g)
	case redirects:
	case spot.Path == "/":
		return rootfs.Invalid("", "%s %q leads to the sandbox's root, which cannot be denied", g.From, g.Path)
	default:
		d.rule(d.names, spot.Path, g.From)
		if spot.Kind == rootfs.PlaceHost {
			d.note(spot.Host, g.From, err)
		}
	}
	return nil
}

// addLinks makes unreplaceable the links on the way of a deny that a program could replace: another link there would have the
// next sandbox of the policy hide something else. The last one is the denied name itself, and is hidden.
func (d *denier) addLinks(links []pathname.Link, g rootfs.Grant) {
	for _, l := range links {
		switch {
		case !d.writables.MayReplace(l.At):
		case l.Last:
			d.rule(d.hosts, l.At, g.From)
		default:
			d.rule(d.replaceable, l.At, g.From)
		}
	}
}

// addTarget hides what such links lead to, unless that could keep a program from starting: the links may be a program's,
// which must not take the system's files, whole grants or the working directory from later sandboxes of its policy.
func (d *denier) addTarget(host string, err error, g rootfs.Grant) {
	switch {
	case pathname.KernelPlace(host) != "" || errors.Is(err, pathname.ErrLoop):
	case d.needed(host):
		d.skipped = append(d.skipped, fmt.Sprintf("%s %q leads, by a link that a program may have made, to %q, which is not hidden: "+
			"name that path to deny it", g.From, g.Path, host))
	default:
		d.note(host, g.From, err)
	}
}

// needed reports whether a host path is shown other than as a part of one grant.
func (d *denier) needed(host string) bool {
	for _, name := range append(d.locations.Parts(host), host) {
		if d.sources[name] {
			return true
		}
		for inside, m := range d.shown(name) {
			if d.classes[m.Target] < classRead || d.index.Mounts[inside] != nil || d.index.Above[inside] || pathname.Within(d.workdir, inside) {
				return true
			}
		}
	}
	return false
}

func (d *denier) note(host, from string, err error) {
	if err == nil {
		d.rule(d.hosts, host, from)
	} else {
		d.rule(d.missing, host, from)
	}
}

// addOthers adds what other mounts of the host show of what is denied.
func (d *denier) addOthers() {
	for _, rules := range []map[string]string{d.hosts, d.missing, d.replaceable} {
		for _, host := range slices.Collect(maps.Keys(rules)) {
			for _, other := range d.locations.Parts(host) {
				d.rule(rules, other, rules[host])
			}
		}
	}
}

// rule is note, but a rule that refuses wins over one that shows nothing, and one by which something is absent over one by which it is empty.
func (d *denier) rule(rules map[string]string, key, from string) {
	if old, ok := rules[key]; !ok || d.before(from, old) {
		rules[key] = from
	}
}

func (d *denier) before(a, b string) bool {
	switch {
	case d.empty[a] != d.empty[b]:
		return !d.empty[a]
	case d.absentBy[a] != d.absentBy[b]:
		return d.absentBy[a]
	}
	return a < b
}

// note keeps the first rule by name, so that the order of the policy does not show.
func note(rules map[string]string, key, from string) {
	if old, ok := rules[key]; !ok || from < old {
		rules[key] = from
	}
}

// addHardLinks adds the other names that the grants have for a denied file.
func (d *denier) addHardLinks() {
	wanted := map[hostfs.Inode]string{}
	for host, from := range d.hosts {
		if info, err := d.tree.Lstat(host); err == nil && !info.Mode.IsDir() && info.Nlink > 1 {
			old, ok := wanted[info.Inode()]
			if !ok || d.before(from, old) {
				wanted[info.Inode()] = from
			}
		}
	}
	d.eachHardLink(wanted, func(host, from string) { d.rule(d.hosts, host, from) })
}

// findMasks finds every path inside at which a mask is needed.
func (d *denier) findMasks() {
	for host, from := range d.hosts {
		info, err := d.tree.Lstat(host)
		if err != nil {
			continue
		}
		for inside, m := range d.shown(host) {
			at, mode := host, info.Mode
			if dir := d.shutAbove(host, m.Source); dir != "" {
				d.skipped = append(d.skipped, fmt.Sprintf("%q cannot be searched, so the program sees an empty directory there: %s denies %q", dir, from, host))
				at, inside, mode = dir, pathname.Rebase(dir, m.Source, m.Target), fs.ModeDir
			}
			d.addMask(inside, from, mode)
			d.present = append(d.present, rootfs.Denied{Inside: inside, Host: at, Grant: m.Source, Writable: m.Writable, Empty: d.empty[from], From: from})
		}
	}
	for _, m := range d.index.Mounts {
		if m.Source != "" {
			d.maskBelow(d.hosts, m.Source, m)
		}
		// The empty directories that every sandbox has show nothing of the host: denying the host's /tmp leaves /tmp.
		if m.Kind != rootfs.MountTmpfs || d.classes[m.Target] != classDefault {
			d.maskBelow(d.names, m.Target, m)
		}
	}
}

// shutAbove gives the topmost directory of a mount's source, above a host path, in which a launcher that is root can mount nothing: its
// privilege in the sandbox ends at files of other users. The program is one of the others there, and cannot search the directory either. It is
// hidden whole, as other callers' launchers hide what they cannot search.
func (d *denier) shutAbove(host, source string) string {
	shut := ""
	if !d.User.Privileged {
		return shut
	}
	for up := range pathname.Ups(pathname.Parent(host)) {
		if info, err := d.tree.Lstat(up); pathname.Within(up, source) && err == nil && !d.searched(info) {
			shut = up
		}
	}
	return shut
}

// searched reports whether the launcher can search a directory in the sandbox, whether an idmapped mount shows it or another.
func (d *denier) searched(info hostfs.Info) bool {
	const owner, group, others = 0o100, 0o010, 0o001
	mapped := func(id, own int) bool { return id == 0 || !d.User.Apart && id == own }
	need := fs.FileMode(others)
	if info.UID == 0 {
		need |= owner
	}
	if info.GID == 0 {
		need |= group
	}
	return mapped(info.UID, d.User.UID) && mapped(info.GID, d.User.GID) || info.Mode&need == need
}

// maskBelow masks a whole mount if p is, or lies below, one of the denied paths.
func (d *denier) maskBelow(denied map[string]string, p string, m *rootfs.Mount) {
	for up := range pathname.Ups(p) {
		if from, ok := denied[up]; ok {
			mode := fs.FileMode(0)
			if m.Dir {
				mode = fs.ModeDir
			}
			d.addMask(m.Target, from, mode)
		}
	}
}

func (d *denier) addMask(target, from string, mode fs.FileMode) {
	if old := d.masks[target]; old == nil || d.before(from, old.From) {
		d.masks[target] = &rootfs.Mount{Kind: rootfs.MountMask, Target: target, Dir: mode.IsDir(), Link: mode&fs.ModeSymlink != 0, Empty: d.empty[from], From: from}
	}
}

// mount replaces what is masked, drops all that lies below, and keeps the rest.
func (d *denier) mount() {
	old, classes := d.index, d.classes
	d.index = rootfs.NewIndex(d.tree)
	d.index.Entries = old.Entries
	d.classes = map[string]class{}
	for target, m := range old.Mounts {
		if !d.masked(target) {
			d.index.Add(m)
			d.classes[target] = classes[target]
		}
	}
	for target, m := range d.masks {
		if !d.masked(pathname.Parent(target)) {
			d.index.Add(m)
			d.classes[target] = classDeny
		}
	}
}

func (d *denier) masked(p string) bool {
	for up := range pathname.Ups(p) {
		if d.masks[up] != nil || d.gone[up] {
			return true
		}
	}
	return false
}

// findAbsent lists the denied paths that do not exist but would be seen if they did.
func (d *denier) findAbsent() {
	names := d.index.HostNames()
	for host, from := range d.missing {
		for inside, m := range names(host) {
			d.absent = append(d.absent, rootfs.Denied{Inside: inside, Host: host, Grant: m.Source, Writable: m.Writable, Empty: d.empty[from], From: from})
		}
	}
}
