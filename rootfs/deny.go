package rootfs

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
)

// denier hides what the policy denies under every name that the view has for it.
type denier struct {
	*compiler
	hosts   map[string]string // host paths to hide → the rule
	missing map[string]string // host paths that do not exist
	names   map[string]string // paths inside: every mount at or below one is hidden
	masks   map[string]*Mount // by target
}

func (c *compiler) addDenies() error {
	d := &denier{c, c.denied, map[string]string{}, map[string]string{}, map[string]*Mount{}}
	for _, g := range sortedGrants(c.Policy.Deny) {
		if err := d.add(g); err != nil {
			return err
		}
	}
	d.addHardLinks()
	d.findMasks()
	d.mount()
	d.findAbsent()
	for host, from := range d.missing {
		note(c.denied, host, from) // so that a deny covers a secret that does not exist yet
	}
	c.present = slices.DeleteFunc(c.present, func(p Denied) bool {
		m := c.scene.mounts[p.Inside]
		return m == nil || m.Kind != MountMask // it lies below another mask
	})
	byInside(c.absent)
	byInside(c.present)
	return nil
}

func byInside(list []Denied) {
	slices.SortFunc(list, func(a, b Denied) int { return cmp.Compare(a.Inside, b.Inside) })
}

// add finds what a deny names: on the host, and inside, where a bind may have given the name to something else.
func (d *denier) add(g Grant) error {
	if err := checkTarget(g); err != nil {
		return err
	}
	t, err := follow(d.tree, g.Path)
	if kernelPlace(t.real) != "" {
		// A link leads there, out of all that a grant shows: there is nothing to hide. It is no error, or a program could
		// keep the next sandbox of its policy from starting by a link to /dev/null in its workspace.
		return nil
	}
	if k := kernelPlace(t.places(g.Path)...); k != "" || t.real == "/" {
		return invalid("", "%s %q leads to %q, which cannot be denied", g.From, g.Path, t.real)
	}
	d.note(t.real, g.From, err)
	if errors.Is(err, errLoop) {
		d.note(g.Path, g.From, err) // the loop may be a program's, and may be gone when its sandbox runs
	}
	for _, inside := range sortedUnique([]string{g.Path, t.real}) {
		spot, err := d.scene.walk(inside)
		if errors.Is(err, errLoop) || kernelPlace(spot.Path) != "" {
			continue
		}
		if spot.Path == "/" {
			return invalid("", "%s %q leads to the sandbox's root, which cannot be denied", g.From, g.Path)
		}
		note(d.names, spot.Path, g.From)
		if spot.Kind == PlaceHost {
			d.note(spot.Host, g.From, err)
		}
	}
	return nil
}

func (d *denier) note(host, from string, err error) {
	if err == nil {
		note(d.hosts, host, from)
	} else {
		note(d.missing, host, from)
	}
}

// note keeps the first rule by name, so that the order of the policy does not show.
func note(rules map[string]string, key, from string) {
	if old, ok := rules[key]; !ok || from < old {
		rules[key] = from
	}
}

// addHardLinks adds the other names that the grants have for a denied file.
func (d *denier) addHardLinks() {
	wanted := map[inode]string{}
	for host, from := range d.hosts {
		if info, err := d.tree.Lstat(host); err == nil && info.Mode.IsRegular() && info.Nlink > 1 {
			old, ok := wanted[inode{info.Dev, info.Ino}]
			if !ok || from < old {
				wanted[inode{info.Dev, info.Ino}] = from
			}
		}
	}
	d.eachHardLink(wanted, func(host, from string) { note(d.hosts, host, from) })
}

// findMasks finds every path inside at which a mask is needed.
func (d *denier) findMasks() {
	names := d.scene.hostNames()
	for host, from := range d.hosts {
		info, err := d.tree.Lstat(host)
		if err != nil {
			continue
		}
		for inside, m := range names(host) {
			d.addMask(inside, from, info.Mode.IsDir())
			d.present = append(d.present, Denied{inside, host, m.Source, m.Writable, from})
		}
	}
	for _, m := range d.scene.mounts {
		if m.Source != "" {
			d.maskBelow(d.hosts, m.Source, m)
		}
		// The empty directories that every sandbox has show nothing of the host: denying the host's /tmp leaves /tmp.
		if m.Kind != MountTmpfs || d.classes[m.Target] != classDefault {
			d.maskBelow(d.names, m.Target, m)
		}
	}
}

// maskBelow masks a whole mount if p is, or lies below, one of the denied paths.
func (d *denier) maskBelow(denied map[string]string, p string, m *Mount) {
	for up := range ups(p) {
		if from, ok := denied[up]; ok {
			d.addMask(m.Target, from, m.Dir)
		}
	}
}

func (d *denier) addMask(target, from string, dir bool) {
	if old := d.masks[target]; old == nil || from < old.From {
		d.masks[target] = &Mount{Kind: MountMask, Target: target, Dir: dir, From: from}
	}
}

// mount replaces what is masked, drops all that lies below, and keeps the rest.
func (d *denier) mount() {
	old, classes := d.scene, d.classes
	d.scene = newScene(d.tree)
	d.scene.entries = old.entries
	d.classes = map[string]class{}
	for target, m := range old.mounts {
		if !d.masked(target) {
			d.scene.mount(m)
			d.classes[target] = classes[target]
		}
	}
	for target, m := range d.masks {
		if !d.masked(parent(target)) {
			d.scene.mount(m)
			d.classes[target] = classDeny
			d.pin(m)
		}
	}
}

// pin makes mount points of the directories above a mask where the program may write: a mount point cannot be renamed. Else a program could move a denied file away from its name, and the next sandbox of the same policy
// would show it under the new one.
func (d *denier) pin(mask *Mount) {
	for up := parent(mask.Target); ; up = parent(up) {
		m := d.scene.cover(up)
		if m == nil || m.Kind != MountBind || m.Source == "" || !m.Writable {
			return
		}
		if m.Target == up {
			continue
		}
		d.scene.mount(&Mount{
			Kind: MountBind, Source: rebase(up, m.Target, m.Source), Target: up, Writable: true, Pin: true, Dir: true, From: mask.From,
		})
		d.classes[up] = classWrite
	}
}

func (d *denier) masked(p string) bool {
	for up := range ups(p) {
		if d.masks[up] != nil {
			return true
		}
	}
	return false
}

// findAbsent lists the denied paths that do not exist but would be seen if they did.
func (d *denier) findAbsent() {
	names := d.scene.hostNames()
	for host, from := range d.missing {
		for inside, m := range names(host) {
			d.absent = append(d.absent, Denied{inside, host, m.Source, m.Writable, from})
		}
	}
}

// inode is the identity of a host file.
type inode struct{ dev, ino uint64 }

// eachHardLink calls found for every name, below what the policy shows, of a file that is wanted. It is a walk through
// all of the grants, so it is only done when something is wanted.
func (c *compiler) eachHardLink(wanted map[inode]string, found func(host, from string)) {
	if len(wanted) == 0 {
		return
	}
	var roots []string
	for _, g := range c.grants {
		roots = append(roots, g.real)
	}
	walked := map[string]bool{}
	for _, root := range sortedUnique(roots) { // parents first
		nested := false
		for up := range ups(root) {
			nested = nested || walked[up]
		}
		if !nested {
			c.walkInodes(root, wanted, found)
			walked[root] = true
		}
	}
}

func (c *compiler) walkInodes(p string, wanted map[inode]string, found func(host, from string)) {
	info, err := c.tree.Tree.Lstat(p) // not remembered: a walk may be long
	if err != nil {
		return
	}
	if info.Mode&fs.ModeType == 0 {
		if from, ok := wanted[inode{info.Dev, info.Ino}]; ok {
			found(p, from)
		}
		return
	}
	if !info.Mode.IsDir() {
		return
	}
	names, err := c.tree.ReadDir(p)
	if err != nil {
		return // what the launcher cannot read the program cannot either
	}
	for _, name := range names {
		c.walkInodes(join(p, name), wanted, found)
	}
}
