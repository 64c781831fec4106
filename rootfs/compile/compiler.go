package compile

import (
	"cmp"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// compiler is the state of one Compile.
type compiler struct {
	Request
	tree            *hostfs.Memo
	mountPoints     []string
	locations       *hostfs.Locations
	writableSources []string // Policy.WritableSources
	writables       *rootfs.Writables

	entries map[string]rootfs.Entry   // links and directories of the root that are there before any mount
	items   []item                    // what is to be mounted
	bases   map[string]bool           // targets of the base's binds
	small   map[string][]rootfs.Entry // of those, the directories that may be copied: target → what is in them
	links   map[string]string         // every link that a grant's path went through: path → text
	names   []name                    // grants whose path went through links
	grants  []grant                   // what the policy shows of the host, for secrets and hard links
	skipped []string

	index   *rootfs.Index
	classes map[string]class // of the index's mounts, by target

	denied      map[string]string // host paths that are hidden → the rule that says so
	absent      []rootfs.Denied
	present     []rootfs.Denied   // what masks hide
	hidden      []rootfs.LeftOut  // what base "host" leaves out
	replaceable map[string]string // links on the way of a deny that a program could replace → the rule
}

// class orders what is asked for at one path: the higher wins.
type class int

const (
	classBase    class = iota
	classHide          // hides a part of the base
	classGuard         // hides a part of the base, also where a grant shows the directory around it
	classDefault       // every sandbox has it
	classRead
	classWrite
	classBind
	classTmpfs
	classDeny
)

// item is a mount that something asked for.
type item struct {
	rootfs.Mount
	class class
	asked string // the target as the policy names it
	host  string // of a mask of the base: what it hides
}

// name is a grant's path that went through links: it must lead to real inside too.
type name struct {
	written, real, from string
	dir                 bool
}

// grant is a host path that the policy shows.
type grant struct {
	path, real, from string
}

func newCompiler(r Request) *compiler {
	c := &compiler{
		Request:     r,
		tree:        hostfs.NewMemo(r.Tree),
		entries:     map[string]rootfs.Entry{},
		bases:       map[string]bool{},
		small:       map[string][]rootfs.Entry{},
		links:       map[string]string{},
		denied:      map[string]string{},
		replaceable: map[string]string{},
	}
	mounts := r.Tree.Mounts()
	for _, m := range mounts {
		c.mountPoints = append(c.mountPoints, m.Target)
	}
	c.mountPoints = pathname.SortedUnique(c.mountPoints)
	c.locations = hostfs.NewLocations(c.tree, mounts)
	c.writableSources = r.Policy.WritableSources(c.tree)
	c.writables = rootfs.NewWritables(c.tree, c.locations, c.writableSources)
	c.index = rootfs.NewIndex(c.tree)
	for _, dir := range []string{"/", "/proc", "/dev", "/sys"} {
		c.addEntry(rootfs.Entry{Path: dir, Kind: rootfs.EntryDir, Mode: 0o755})
	}
	return c
}

// addEntry puts an entry into the root unless something is there, or a parent is no directory.
func (c *compiler) addEntry(e rootfs.Entry) {
	for up := range pathname.Ups(pathname.Parent(e.Path)) {
		if old, ok := c.entries[up]; ok && old.Kind != rootfs.EntryDir {
			return
		}
	}
	for up := range pathname.Ups(pathname.Parent(e.Path)) {
		if _, ok := c.entries[up]; !ok {
			c.entries[up] = rootfs.Entry{Path: up, Kind: rootfs.EntryDir, Mode: 0o755}
		}
	}
	if _, ok := c.entries[e.Path]; !ok {
		c.entries[e.Path] = e
	}
}

func (c *compiler) askedWorkdir() string {
	dir := c.Policy.Workdir.Path
	if w := c.Policy.Workspace; dir == "" && w != nil {
		dir = w.Path
	}
	return cmp.Or(dir, "/")
}

// startDir is where the working directory is inside.
func (c *compiler) startDir() string {
	spot, _ := c.index.Walk(c.askedWorkdir()) // setWorkdir says what is wrong with it
	return spot.Path
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
