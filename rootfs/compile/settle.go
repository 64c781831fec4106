package compile

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"slices"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// maxRounds ends a search for the final targets of mounts that links send in circles.
const maxRounds = 40

// A directory of the base that is hidden but has a grant below it becomes a small tmpfs, in which the way to the grant
// can be made.
const (
	hiddenSize   = 1 << 20 // bytes
	hiddenInodes = 1024
	HiddenMode   = 0o555
)

// settle finds the final target of every mount. A target may go through a link that only another mount brings, so it is
// done in rounds: put everything in order, follow every target through what is mounted before it, and begin again if
// that moved one. Once nothing moves, no target goes through a link, and all that decides where it is lies above it and
// so came earlier.
func (c *compiler) settle() error {
	for range maxRounds {
		if err := c.order(); err != nil {
			return err
		}
		moved, err := c.mountAll()
		if !moved {
			return err
		}
	}
	return rootfs.Invalid("", "mount targets go in circles through symbolic links")
}

// followGrantLinks moves targets to where the links that grants go through lead: such a link is one inside too, even
// where only its end can be mounted.
func (c *compiler) followGrantLinks() error {
	for i := range c.items {
		it := &c.items[i]
		if it.class != classBind && it.class != classTmpfs && it.class != classDefault {
			continue
		}
		p, _, err := pathname.Chase(it.Target, func(place string) (string, bool) {
			text, ok := c.links[place]
			return text, ok
		})
		if err == nil {
			it.Target = p
		}
	}
	return nil
}

// order sorts items, parents first, and keeps the winner of those with one target.
func (c *compiler) order() error {
	slices.SortFunc(c.items, func(a, b item) int {
		return cmp.Or(
			cmp.Compare(pathname.Depth(a.Target), pathname.Depth(b.Target)),
			cmp.Compare(a.Target, b.Target),
			-cmp.Compare(a.class, b.class),
			-boolCompare(a.Writable, b.Writable),
			-boolCompare(a.PerExec, b.PerExec),
			-cmp.Compare(a.Size, b.Size),
			-cmp.Compare(a.Inodes, b.Inodes),
			cmp.Compare(a.Source, b.Source),
			cmp.Compare(a.From, b.From),
		)
	})
	for i := 1; i < len(c.items); i++ {
		a, b := c.items[i-1], c.items[i]
		if a.Target == b.Target && a.class == classBind && b.class == classBind && a.Source != b.Source {
			return rootfs.Invalid("give each its own target", "%s and %s show %q and %q at one target, %q",
				a.From, b.From, a.Source, b.Source, a.Target)
		}
	}
	c.items = slices.CompactFunc(c.items, func(a, b item) bool { return a.Target == b.Target })
	return nil
}

// mountAll mounts the items, in order, in a new index. It reports whether a target moved; then an error may be only due to
// the order, and counts for nothing.
func (c *compiler) mountAll() (moved bool, err error) {
	c.index, c.classes = rootfs.NewIndex(c.tree), map[string]class{}
	maps.Copy(c.index.Entries, c.entries)
	for i := range c.items {
		it := &c.items[i]
		spot, links, walkErr := c.index.Trace(it.Target)
		if it.class == classBase && c.replaced(it, spot) && !errors.Is(walkErr, pathname.ErrLoop) {
			continue
		}
		if lost, why := c.targetIsLost(it, links, spot, walkErr); lost {
			err = cmp.Or(err, why)
			continue
		}
		if spot.Path != it.Target {
			it.Target, moved = spot.Path, true
		}
		if putErr := c.put(it, spot, walkErr); putErr != nil && err == nil {
			err = putErr
		}
	}
	return moved, err
}

// targetIsLost reports whether a target goes in circles, or through a link that a program may have made. What the policy
// asks for is refused in that case, what sandboxes have by default is left out.
func (c *compiler) targetIsLost(it *item, links []pathname.Link, spot rootfs.Place, walkErr error) (bool, error) {
	if errors.Is(walkErr, pathname.ErrLoop) {
		return true, rootfs.Invalid("", "%s %q goes in circles through symbolic links", it.From, it.asked)
	}
	l, redirects := c.writables.First(c.index.OnHost(links))
	if !redirects || it.class < classRead {
		return redirects, nil
	}
	return true, rootfs.Redirected(it.From, it.asked, l, spot.Path)
}

// replaced reports whether the policy put something of its own where this part of the base would be. The base's own
// targets go through no link, so one that does goes through the policy's.
func (c *compiler) replaced(it *item, spot rootfs.Place) bool {
	return spot.Path != it.Target || spot.Mount != nil && c.classes[spot.Mount.Target] >= classRead
}

// put mounts an item at the path that its target leads to.
func (c *compiler) put(it *item, spot rootfs.Place, walkErr error) error {
	if it.class >= classRead {
		if err := checkTarget(rootfs.Grant{Path: it.Target, From: it.From}); err != nil {
			return err
		}
	}
	keep := true
	var err error
	switch spot.Kind {
	case rootfs.PlaceRoot:
		keep, err = c.putRoot(it, spot, walkErr)
	case rootfs.PlaceHost:
		keep, err = c.putHost(it, spot, walkErr)
	case rootfs.PlaceMask:
		keep = it.class >= classDefault && spot.Mount.Dir
		if keep {
			openMask(spot.Mount)
		} else if it.class >= classRead {
			err = rootfs.Invalid("choose another target", "%s %q lies below %q, which is hidden", it.From, it.asked, spot.Mount.Target)
		}
	case rootfs.PlaceTmpfs:
		keep = it.Kind != rootfs.MountMask // a tmpfs has nothing of the base to hide
	case rootfs.PlaceGenerated:
		keep = false // nothing is generated yet
	}
	if keep && err == nil {
		m := it.Mount
		c.index.Add(&m)
		c.classes[m.Target] = it.class
	}
	return err
}

func (c *compiler) putRoot(it *item, spot rootfs.Place, walkErr error) (bool, error) {
	if it.Kind == rootfs.MountMask {
		return false, nil
	}
	if walkErr == nil && spot.Dir != it.Dir {
		return c.wrongType(it, "the sandbox's own root")
	}
	if it.Dir {
		c.index.MakeDirs(it.Target)
		return true, nil
	}
	c.index.MakeDirs(pathname.Parent(it.Target))
	c.index.Entries[it.Target] = rootfs.Entry{Path: it.Target, Kind: rootfs.EntryFile, Mode: 0o644}
	return true, nil
}

func (c *compiler) putHost(it *item, spot rootfs.Place, walkErr error) (bool, error) {
	shown := c.classes[spot.Mount.Target]
	switch {
	case it.class == classHide && (spot.Host != it.host || shown >= classRead):
		return false, nil
	case it.class == classGuard && spot.Host != it.host:
		return false, nil
	case it.class == classDefault && shown >= classRead:
		return false, nil // the policy shows what the host has there
	case it.Kind == rootfs.MountBind && c.redundant(it, spot):
		return false, nil
	case walkErr != nil && it.class < classRead:
		return false, nil
	case errors.Is(walkErr, fs.ErrNotExist):
		return false, rootfs.Invalid("create it on the host first, or choose a target outside "+spot.Mount.Target,
			"%s %q: %q does not exist on the host, and nothing is made there", it.From, it.asked, spot.Host)
	case walkErr != nil:
		return false, rootfs.Invalid("", "%s %q: cannot look at %q: %w", it.From, it.asked, spot.Host, walkErr)
	case spot.Dir != it.Dir:
		return c.wrongType(it, spot.Host)
	}
	return true, nil
}

func (c *compiler) wrongType(it *item, where string) (bool, error) {
	if it.class < classRead {
		return false, nil
	}
	kinds := map[bool]string{true: "a directory", false: "not a directory"}
	return false, rootfs.Invalid("choose another target", "%s %q: what is mounted there is %s, but what it would cover (%s) is %s",
		it.From, it.asked, kinds[it.Dir], where, kinds[!it.Dir])
}

// redundant reports whether the mount above shows the same already. Where the host has mounts in between or below it
// does not: the base hides those.
func (c *compiler) redundant(it *item, spot rootfs.Place) bool {
	if spot.Host != it.Source || spot.Writable != it.Writable {
		return false
	}
	if c.User.Apart && it.class >= classRead && c.classes[spot.Mount.Target] < classRead {
		return false
	}
	if slices.ContainsFunc(c.Policy.Empty, func(g rootfs.Grant) bool {
		return pathname.Within(it.Source, g.Path) && pathname.Within(g.Path, spot.Mount.Source)
	}) {
		return false // see addEmpty
	}
	return !slices.ContainsFunc(c.mountPoints, func(mp string) bool {
		return pathname.Within(mp, it.Source) || pathname.Below(mp, spot.Mount.Source) && pathname.Within(it.Source, mp)
	})
}

// openMask turns a mask of the base into an empty directory that targets can be made in.
func openMask(m *rootfs.Mount) {
	m.Kind, m.Mode, m.Size, m.Inodes = rootfs.MountTmpfs, HiddenMode, hiddenSize, hiddenInodes
}

// addNames makes the name that the policy gives lead to the granted path, where links could not be made: inside a tmpfs
// no link can be put, so the path is bound there once more, with all that is mounted below it.
func (c *compiler) addNames() error {
	slices.SortFunc(c.names, func(a, b name) int {
		return cmp.Or(cmp.Compare(pathname.Depth(a.written), pathname.Depth(b.written)), cmp.Compare(a.written, b.written), cmp.Compare(a.from, b.from))
	})
	for range maxRounds {
		before := len(c.items)
		for _, n := range c.names {
			c.addName(n)
		}
		if len(c.items) == before {
			return nil
		}
		if err := c.settle(); err != nil {
			return err
		}
	}
	return rootfs.Invalid("", "granted names go in circles through symbolic links")
}

func (c *compiler) addName(n name) {
	real, err := c.index.Walk(n.real)
	if err != nil || real.Host != n.real {
		return // something else was asked for at that path, and won
	}
	spot, links, err := c.index.Trace(n.written)
	if _, redirects := c.writables.First(c.index.OnHost(links)); redirects {
		return
	}
	there := spot.Host == n.real && spot.Writable == real.Writable
	if errors.Is(err, pathname.ErrLoop) || there || c.index.Mounts[spot.Path] != nil {
		return // the name leads there, or to something else that the policy put there
	}
	m := rootfs.Mount{Kind: rootfs.MountBind, Source: n.real, Target: spot.Path, Writable: real.Writable, Dir: n.dir, From: n.from}
	c.items = append(c.items, item{Mount: m, class: classRead, asked: n.written})
	if !c.index.Above[real.Path] {
		return
	}
	for target, nested := range c.index.Mounts {
		if pathname.Below(target, real.Path) {
			again := *nested
			again.Target = pathname.Rebase(target, real.Path, spot.Path)
			c.items = append(c.items, item{Mount: again, class: c.classes[target], asked: again.Target})
		}
	}
}
