// Package compile turns the files of a policy into the view that the program gets. Compile is a list of steps over one state, the
// compiler; each step has a file. It looks at the host through hostfs.Tree alone, so that tests can make hosts up, and changes nothing.
//
// It imports of ours rootfs, hostfs, pathname, survey and fault.
package compile

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"slices"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// Compile turns a policy's files into the view that the program gets. It fails with an *Error where the policy is at
// fault. It changes nothing, and the order of the policy's lists never matters to the result.
//
// The way: collect what the base, the policy and the defaults ask for; settle where each of them is mounted; make the
// names that went through links; write the generated files; mask what is denied; check secrets against the result; pin
// what a program could move from under a mount; check the workdir; last, copy what is cheaper to copy than to mount.
func Compile(r Request) (*rootfs.View, error) {
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

// view lists what the index has.
func (c *compiler) view() *rootfs.View {
	v := &rootfs.View{Skipped: pathname.SortedUnique(c.skipped), Absent: c.absent, Masked: c.present, Gone: c.gone, Overlays: c.overlays, Emptied: c.emptied, Hidden: c.hidden, Mounts: []rootfs.Mount{}, Entries: []rootfs.Entry{}, Writable: c.writableSources}
	for target, m := range c.index.Mounts {
		out := *m
		out.Target = target
		v.Mounts = append(v.Mounts, out)
	}
	slices.SortFunc(v.Mounts, func(a, b rootfs.Mount) int {
		return cmp.Or(
			boolCompare(a.Kind == rootfs.MountMask, b.Kind == rootfs.MountMask),
			cmp.Compare(pathname.Depth(a.Target), pathname.Depth(b.Target)),
			cmp.Compare(c.classes[a.Target], c.classes[b.Target]),
			cmp.Compare(a.Target, b.Target),
		)
	})
	for _, p := range slices.Sorted(maps.Keys(c.index.Entries)) {
		// What a mount covers nobody sees.
		if p != "/" && c.index.Cover(pathname.Parent(p)) == nil {
			v.Entries = append(v.Entries, c.index.Entries[p])
		}
	}
	return v
}

// setWorkdir checks that the program's working directory exists inside.
func (c *compiler) setWorkdir(v *rootfs.View) error {
	g := c.Policy.Workdir
	g.Path = c.askedWorkdir()
	if g.From == "" {
		g.From = "workdir"
	}
	if err := checkPath(g); err != nil {
		return err
	}
	spot, err := c.index.Walk(g.Path)
	// A path such as /proc/self/fd/9 would be whatever the launcher happened to have open (CVE-2024-21626).
	if k := pathname.KernelPlace(g.Path, spot.Path); k != "" {
		return rootfs.Invalid("choose a directory of a grant or the workspace", "%s %q lies in %s", g.From, g.Path, k)
	}
	why := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "does not exist in the sandbox"
	case err != nil:
		why = "cannot be reached in the sandbox"
	case spot.Kind == rootfs.PlaceMask:
		why = "is denied"
	case !spot.Dir:
		why = "is not a directory in the sandbox"
	}
	if why != "" {
		return fault.New(fault.GrantMissing, "create the directory on the host, or grant it, or choose another workdir", "%s %q %s", g.From, g.Path, why)
	}
	v.Workdir = g.Path
	return nil
}
