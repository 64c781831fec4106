package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
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
		if m.Link { // it is mounted on, not followed
			spot, err = so.scene(tree).at(m.Target)
		}
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
			if info, err := tree.Lstat(m.Source); err != nil || info.Mode&fs.ModeSymlink != 0 != m.Link || info.Mode.IsDir() != m.Dir {
				t.Errorf("mount %d: source %q: %v, %v", i, m.Source, info.Mode, err)
			}
		}
		targets[m.Target] = true
		so.Mounts = v.Mounts[:i+1]
	}
}

// checkDenied checks that no name in names, and no name that Inside gives, leads to a denied host file. Denied paths of
// which the view says that what they lead to is not hidden are left out.
func checkDenied(t testing.TB, tree *fakeTree, v *View, denied, names []string) {
	t.Helper()
	hidden := map[string]bool{}
	for _, d := range denied {
		tr, err := follow(tree, d)
		spared := slices.ContainsFunc(v.Skipped, func(s string) bool { return strings.Contains(s, fmt.Sprintf(" %q leads, by a link", d)) })
		if err != nil || spared {
			continue
		}
		nodes := map[*fakeNode]bool{tree.nodes[tr.real]: true}
		for p, n := range tree.nodes {
			if within(p, tr.real) && n.mode.IsDir() {
				nodes[n] = true
			}
		}
		for _, p := range tree.paths() {
			same := false // by another mount or a hard link too
			for up := range ups(p) {
				same = same || nodes[tree.nodes[up]]
			}
			if !same && !within(p, tr.real) {
				continue
			}
			hidden[p] = true
			if at := v.Inside(p); len(at) > 0 {
				t.Errorf("denied %q (by %q) is inside at %q", p, d, at)
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

// checkPins checks that every directory above a mount's source or target is a mount point, where the program could rename
// it: by whatever name a writable bind has it.
func checkPins(t testing.TB, tree *fakeTree, v *View) {
	t.Helper()
	s := v.scene(tree)
	mounted, above := map[*fakeNode]bool{}, map[string]string{}
	for target, m := range s.mounts {
		dirs := []string{}
		if up := s.cover(parent(target)); up != nil && up.Source != "" && target != "/" {
			mounted[tree.nodes[rebase(target, up.Target, up.Source)]] = true
			dirs = append(dirs, rebase(parent(target), up.Target, up.Source))
		}
		if m.Source != "" {
			dirs = append(dirs, m.Source)
		}
		for _, d := range dirs {
			for up := range ups(d) {
				if m.Pin {
					break
				}
				above[up] = target
			}
		}
	}
	for dir, target := range above {
		for p, n := range tree.nodes {
			isMount := slices.ContainsFunc(tree.mounts, func(m HostMount) bool { return m.Target == p })
			if n != tree.nodes[dir] || mounted[n] || isMount || p != dir && !n.mode.IsDir() { // hard links are other entries
				continue
			}
			for inside, m := range s.hostNames()(p) {
				if m.Writable && inside != m.Target {
					t.Errorf("%q (host %q) can be moved, and is above the mount at %q", inside, p, target)
				}
			}
		}
	}
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
