package rootfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
)

// Compile turns a policy's files into the view that the program gets. It fails with an *Error where the policy is at
// fault. It changes nothing, and the order of the policy's lists never matters to the result.
//
// The way: collect what the base, the policy and the defaults ask for; settle where each of them is mounted; make the
// names that went through links; write the generated files; mask what is denied; check secrets against the result; pin
// what a program could move from under a mount; check the workdir; last, copy what is cheaper to copy than to mount.
func Compile(r Request) (*View, error) {
	c := newCompiler(r)
	for _, step := range []func() error{
		c.addBase, c.addPolicy, c.addDefaults, c.followGrantLinks, c.settle, c.addNames, c.addGenerated,
		c.addEmpty, c.addDenies, c.addGuards, c.checkSecrets, c.addPins,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	v := c.view()
	if err := c.setWorkdir(v); err != nil {
		return nil, err
	}
	c.copySmall(v)
	c.copyTrees(v)
	return v, nil
}

// compiler is the state of one Compile.
type compiler struct {
	Request
	tree        *memoTree
	mountPoints []string
	places      *places
	writable    []string // what writableSources has found
	hands       *hands

	entries map[string]Entry   // links and directories of the root that are there before any mount
	items   []item             // what is to be mounted
	bases   map[string]bool    // targets of the base's binds
	small   map[string][]Entry // of those, the directories that may be copied: target → what is in them
	links   map[string]string  // every link that a grant's path went through: place → text
	names   []name             // grants whose path went through links
	grants  []grant            // what the policy shows of the host, for secrets and hard links
	skipped []string

	scene   *scene
	classes map[string]class // of the scene's mounts, by target

	denied  map[string]string // host paths that are hidden → the rule that says so
	absent  []Denied
	present []Denied          // what masks hide
	held    map[string]string // links on the way of a deny that a program could replace → the rule
}

// class orders what is asked for at one place: the higher wins.
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
	Mount
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
		Request: r,
		tree:    &memoTree{Tree: r.Tree, seen: map[string]statResult{}},
		entries: map[string]Entry{},
		bases:   map[string]bool{},
		small:   map[string][]Entry{},
		links:   map[string]string{},
		denied:  map[string]string{},
		held:    map[string]string{},
	}
	mounts := r.Tree.Mounts()
	for _, m := range mounts {
		c.mountPoints = append(c.mountPoints, m.Target)
	}
	c.mountPoints = sortedUnique(c.mountPoints)
	c.places = newPlaces(c.tree, mounts)
	c.writable = sortedUnique(c.writableSources())
	c.hands = newHands(c.tree, c.places, c.writable)
	c.scene = newScene(c.tree)
	for _, dir := range []string{"/", "/proc", "/dev", "/sys"} {
		c.addEntry(Entry{Path: dir, Kind: EntryDir, Mode: 0o755})
	}
	return c
}

// addEntry puts an entry into the root unless something is there, or a parent is no directory.
func (c *compiler) addEntry(e Entry) {
	for up := range ups(parent(e.Path)) {
		if old, ok := c.entries[up]; ok && old.Kind != EntryDir {
			return
		}
	}
	for up := range ups(parent(e.Path)) {
		if _, ok := c.entries[up]; !ok {
			c.entries[up] = Entry{Path: up, Kind: EntryDir, Mode: 0o755}
		}
	}
	if _, ok := c.entries[e.Path]; !ok {
		c.entries[e.Path] = e
	}
}

// view writes the scene down.
func (c *compiler) view() *View {
	v := &View{Skipped: sortedUnique(c.skipped), Absent: c.absent, Masked: c.present, Mounts: []Mount{}, Entries: []Entry{}, writable: c.writable}
	for target, m := range c.scene.mounts {
		out := *m
		out.Target = target
		v.Mounts = append(v.Mounts, out)
	}
	slices.SortFunc(v.Mounts, func(a, b Mount) int {
		return cmp.Or(
			boolCompare(a.Kind == MountMask, b.Kind == MountMask),
			cmp.Compare(depth(a.Target), depth(b.Target)),
			cmp.Compare(c.classes[a.Target], c.classes[b.Target]),
			cmp.Compare(a.Target, b.Target),
		)
	})
	for _, p := range slices.Sorted(maps.Keys(c.scene.entries)) {
		// What a mount covers nobody sees.
		if p != "/" && c.scene.cover(parent(p)) == nil {
			v.Entries = append(v.Entries, c.scene.entries[p])
		}
	}
	return v
}

// setWorkdir checks that the program's working directory exists inside.
func (c *compiler) setWorkdir(v *View) error {
	g := c.Policy.Workdir
	g.Path = c.askedWorkdir()
	if g.From == "" {
		g.From = "workdir"
	}
	if err := checkPath(g); err != nil {
		return err
	}
	spot, err := c.scene.walk(g.Path)
	// A path such as /proc/self/fd/9 would be whatever the launcher happened to have open (CVE-2024-21626).
	if k := kernelPlace(g.Path, spot.Path); k != "" {
		return invalid("choose a directory of a grant or the workspace", "%s %q lies in %s", g.From, g.Path, k)
	}
	why := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "does not exist in the sandbox"
	case err != nil:
		why = "cannot be reached in the sandbox"
	case spot.Kind == PlaceMask:
		why = "is denied"
	case !spot.Dir:
		why = "is not a directory in the sandbox"
	}
	if why != "" {
		return &Error{
			Code: codeMissing, Message: fmt.Sprintf("%s %q %s", g.From, g.Path, why),
			Hint: "create the directory on the host, or grant it, or choose another workdir",
		}
	}
	v.Workdir = g.Path
	return nil
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
	spot, _ := c.scene.walk(c.askedWorkdir()) // setWorkdir says what is wrong with it
	return spot.Path
}

// Codes of Error.
const (
	codeMissing = "grant_missing"
	codeSecret  = "grant_holds_secret"
	codeInvalid = "policy_invalid"
)

func invalid(hint, format string, args ...any) *Error {
	return &Error{Code: codeInvalid, Message: fmt.Sprintf(format, args...), Hint: hint}
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

func sortedUnique(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}
