package rootfs

import (
	"errors"
	"io/fs"
	"slices"
	"testing"
)

// checkView checks what must be true of every view of a host, whatever the policy.
func checkView(t testing.TB, tree Tree, v *View) {
	t.Helper()
	so := &View{Entries: v.Entries}
	made := map[string]bool{"/": true}
	for _, e := range v.Entries {
		if !made[parent(e.Path)] {
			t.Errorf("entry %q comes before its parent", e.Path)
		}
		made[e.Path] = made[e.Path] || e.Kind == EntryDir
	}
	masks, targets := false, map[string]bool{}
	for i, m := range v.Mounts {
		spot, err := so.Lookup(tree, m.Target)
		switch {
		case targets[m.Target]:
			t.Errorf("mount %d: two at %q", i, m.Target)
		case spot.Path != m.Target:
			t.Errorf("mount %d: target %q goes through links to %q", i, m.Target, spot.Path)
		case spot.Kind == PlaceTmpfs: // made there by whoever mounts
		case err != nil:
			t.Errorf("mount %d: target %q does not exist: %v", i, m.Target, err)
		case spot.Dir != m.Dir:
			t.Errorf("mount %d: target %q: directory %v, but mounted there %v", i, m.Target, spot.Dir, m.Dir)
		case spot.Kind == PlaceMask || spot.Kind == PlaceGenerated:
			t.Errorf("mount %d: target %q lies in a %s", i, m.Target, spot.Kind)
		}
		for target := range targets {
			if below(target, m.Target) && m.Kind != MountMask {
				t.Errorf("mount %d: %q covers %q", i, m.Target, target)
			}
			if below(target, m.Target) && m.Kind == MountMask {
				t.Errorf("mount %d: mask %q has the mount %q below it", i, m.Target, target)
			}
		}
		if masks && m.Kind != MountMask {
			t.Errorf("mount %d: %q comes after a mask", i, m.Target)
		}
		masks = masks || m.Kind == MountMask
		if m.Source != "" {
			if info, err := tree.Lstat(m.Source); err != nil || info.Mode&fs.ModeSymlink != 0 || info.Mode.IsDir() != m.Dir {
				t.Errorf("mount %d: source %q: %v, %v", i, m.Source, info.Mode, err)
			}
		}
		targets[m.Target] = true
		so.Mounts = v.Mounts[:i+1]
	}
}

// checkDenied checks that no name in names, and no name that Inside gives, leads to a denied host file.
func checkDenied(t testing.TB, tree *fakeTree, v *View, denied, grants, names []string) {
	t.Helper()
	hidden := map[string]bool{}
	for _, d := range denied {
		tr, err := follow(tree, d)
		if err != nil {
			continue
		}
		for _, p := range tree.paths() {
			if within(p, tr.real) {
				hidden[p] = true
				if at := v.Inside(p); len(at) > 0 {
					t.Errorf("denied %q (by %q) is inside at %q", p, d, at)
				}
			}
			if inGrant(tree, grants, p) && tr.info.Mode.IsRegular() && tree.nodes[p] == tree.nodes[tr.real] {
				hidden[p] = true
			}
		}
	}
	s := v.scene(tree)
	for _, n := range names {
		spot, err := s.walk(n)
		if err == nil && spot.Kind == PlaceHost && hidden[spot.Host] {
			t.Errorf("%q leads to denied %q", n, spot.Host)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errLoop) {
			t.Errorf("Lookup(%q): %v", n, err)
		}
	}
}

// checkNames checks that the names of denies lead nowhere inside, whatever stands there on the host.
func checkNames(t testing.TB, tree Tree, v *View, denies []Grant) {
	t.Helper()
	for _, d := range denies {
		if spot, err := v.Lookup(tree, d.Path); err == nil && spot.Kind == PlaceHost {
			t.Errorf("denied %q leads inside to %q", d.Path, spot.Host)
		}
	}
}

// inGrant reports whether one of the grants shows the host path p. The base is not searched for hard links.
func inGrant(tree Tree, grants []string, p string) bool {
	return slices.ContainsFunc(grants, func(g string) bool {
		tr, err := follow(tree, g)
		return err == nil && within(p, tr.real)
	})
}

// sources lists the host paths that a policy grants.
func sources(p Policy) []string {
	var list []string
	for _, g := range append(slices.Clone(p.Read), p.Write...) {
		list = append(list, g.Path)
	}
	for _, b := range p.Binds {
		list = append(list, b.Source)
	}
	if p.Workspace != nil {
		list = append(list, p.Workspace.Source)
	}
	return list
}

// allNames lists every path of the host under every name that a bind could give it.
func allNames(tree *fakeTree, v *View) []string {
	names := tree.paths()
	for _, m := range v.Mounts {
		for _, p := range tree.paths() {
			if m.Source != "" && within(p, m.Source) {
				names = append(names, rebase(p, m.Source, m.Target))
			}
		}
	}
	return names
}
