package compile

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/rootfs/roottest"
)

// checkView checks what must be true of every view of a host, whatever the policy.
func checkView(t testing.TB, tree hostfs.Tree, v *rootfs.View) {
	t.Helper()
	so := &rootfs.View{Entries: v.Entries}
	made := map[string]bool{"/": true}
	for _, e := range v.Entries {
		if !made[pathname.Parent(e.Path)] {
			t.Errorf("entry %q comes before its parent", e.Path)
		}
		made[e.Path] = made[e.Path] || e.Kind == rootfs.EntryDir
	}
	masks, targets := false, map[string]bool{}
	for i, m := range v.Mounts {
		spot, err := so.Lookup(tree, m.Target)
		if m.Link { // it is mounted on, not followed
			spot, err = so.Index(tree).At(m.Target)
		}
		switch {
		case targets[m.Target]:
			t.Errorf("mount %d: two at %q", i, m.Target)
		case spot.Path != m.Target:
			t.Errorf("mount %d: target %q goes through links to %q", i, m.Target, spot.Path)
		case spot.Kind == rootfs.PlaceTmpfs: // made there by whoever mounts
		case err != nil:
			t.Errorf("mount %d: target %q does not exist: %v", i, m.Target, err)
		case spot.Dir != m.Dir:
			t.Errorf("mount %d: target %q: directory %v, but mounted there %v", i, m.Target, spot.Dir, m.Dir)
		case spot.Kind == rootfs.PlaceMask || spot.Kind == rootfs.PlaceGenerated:
			t.Errorf("mount %d: target %q lies in a %s", i, m.Target, spot.Kind)
		}
		for target := range targets {
			if pathname.Below(target, m.Target) && m.Kind != rootfs.MountMask {
				t.Errorf("mount %d: %q covers %q", i, m.Target, target)
			}
			if pathname.Below(target, m.Target) && m.Kind == rootfs.MountMask {
				t.Errorf("mount %d: mask %q has the mount %q below it", i, m.Target, target)
			}
		}
		if masks && m.Kind != rootfs.MountMask {
			t.Errorf("mount %d: %q comes after a mask", i, m.Target)
		}
		masks = masks || m.Kind == rootfs.MountMask
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
func checkDenied(t testing.TB, tree *roottest.Tree, v *rootfs.View, denied, names []string) {
	t.Helper()
	hidden := map[string]bool{}
	for _, d := range denied {
		tr, err := hostfs.Follow(tree, d)
		spared := slices.ContainsFunc(v.Skipped, func(s string) bool { return strings.Contains(s, fmt.Sprintf(" %q leads, by a link", d)) })
		if err != nil || spared {
			continue
		}
		nodes := map[*roottest.Node]bool{tree.Nodes[tr.Real]: true}
		for p, n := range tree.Nodes {
			if pathname.Within(p, tr.Real) && n.Mode.IsDir() {
				nodes[n] = true
			}
		}
		for _, p := range tree.Paths() {
			same := false // by another mount or a hard link too
			for up := range pathname.Ups(p) {
				same = same || nodes[tree.Nodes[up]]
			}
			if !same && !pathname.Within(p, tr.Real) {
				continue
			}
			hidden[p] = true
			if at := v.Inside(p); len(at) > 0 {
				t.Errorf("denied %q (by %q) is inside at %q", p, d, at)
			}
		}
	}
	s := v.Index(tree)
	for _, n := range names {
		spot, err := s.Walk(n)
		if err == nil && spot.Kind == rootfs.PlaceHost && hidden[spot.Host] {
			t.Errorf("%q leads to denied %q", n, spot.Host)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, pathname.ErrLoop) {
			t.Errorf("Lookup(%q): %v", n, err)
		}
	}
}

// checkNames checks that the names of denies lead nowhere inside, whatever stands there on the host.
func checkNames(t testing.TB, tree hostfs.Tree, v *rootfs.View, denies []rootfs.Grant) {
	t.Helper()
	for _, d := range denies {
		if spot, err := v.Lookup(tree, d.Path); err == nil && spot.Kind == rootfs.PlaceHost {
			t.Errorf("denied %q leads inside to %q", d.Path, spot.Host)
		}
	}
}

// checkPins checks that every directory above a mount's source or target is a mount point, where the program could rename
// it: by whatever name a writable bind has it.
func checkPins(t testing.TB, tree *roottest.Tree, v *rootfs.View) {
	t.Helper()
	s := v.Index(tree)
	mounted, above := map[*roottest.Node]bool{}, map[string]string{}
	for target, m := range s.Mounts {
		dirs := []string{}
		if up := s.Cover(pathname.Parent(target)); up != nil && up.Source != "" && target != "/" {
			mounted[tree.Nodes[pathname.Rebase(target, up.Target, up.Source)]] = true
			dirs = append(dirs, pathname.Rebase(pathname.Parent(target), up.Target, up.Source))
		}
		if m.Source != "" {
			dirs = append(dirs, m.Source)
		}
		for _, d := range dirs {
			for up := range pathname.Ups(d) {
				if m.Pin {
					break
				}
				above[up] = target
			}
		}
	}
	for dir, target := range above {
		for p, n := range tree.Nodes {
			isMount := slices.ContainsFunc(tree.Table, func(m hostfs.Mount) bool { return m.Target == p })
			if n != tree.Nodes[dir] || mounted[n] || isMount || p != dir && !n.Mode.IsDir() { // hard links are other entries
				continue
			}
			for inside, m := range s.HostNames()(p) {
				if m.Writable && inside != m.Target {
					t.Errorf("%q (host %q) can be moved, and is above the mount at %q", inside, p, target)
				}
			}
		}
	}
}
