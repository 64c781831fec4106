package roottest

import (
	"fmt"
	"io/fs"
	"math/rand"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// AllNames lists every path of the host under every name that a bind could give it.
func AllNames(tree *Tree, v *rootfs.View) []string {
	names := tree.Paths()
	for _, m := range v.Mounts {
		for _, p := range tree.Paths() {
			if m.Source != "" && pathname.Within(p, m.Source) {
				names = append(names, pathname.Rebase(p, m.Source, m.Target))
			}
		}
	}
	return names
}

// randomPath gives a path of up to four components from few names, so that rules meet often.
func randomPath(r *rand.Rand) string {
	names := []string{"a", "b", "ab", "tmp", "home", "u"}
	var p strings.Builder
	for range 1 + r.Intn(4) {
		p.WriteString("/" + names[r.Intn(len(names))])
	}
	return p.String()
}

// RandomHost is a host of few names, with links, hard links and mounts.
func RandomHost(t testing.TB, r *rand.Rand) *Tree {
	t.Helper()
	tree := Host(t)
	for range 5 + r.Intn(25) {
		p := randomPath(r)
		if up := tree.Nodes[pathname.Parent(p)]; tree.Nodes[p] != nil || up != nil && !up.Mode.IsDir() || !canMake(tree, p) {
			continue
		}
		addRandom(tree, r, p)
	}
	addMounts(tree, r)
	return tree
}

// addMounts mounts another file system, or binds a directory, or neither.
func addMounts(tree *Tree, r *rand.Rand) {
	if r.Intn(3) == 0 {
		all := tree.Paths()
		if p := all[r.Intn(len(all))]; tree.Nodes[p].Mode.IsDir() && p != "/" {
			tree.AddMount("0:2", "/", p)
		}
	}
	if r.Intn(3) == 0 {
		all := tree.Paths()
		source, at := all[r.Intn(len(all))], randomPath(r)
		if up := tree.Nodes[pathname.Parent(at)]; tree.Nodes[at] == nil && (up == nil || up.Mode.IsDir()) && canMake(tree, at) &&
			!pathname.Within(at, source) && tree.Nodes[source].Mode&fs.ModeSymlink == 0 {
			tree.bind(at, source)
		}
	}
}

// addRandom makes a file, a directory, a link or a hard link.
func addRandom(tree *Tree, r *rand.Rand, p string) {
	switch r.Intn(6) {
	case 0, 1:
		tree.Add(p, 0o644)
	case 2:
		tree.Add(p, 0o755|1<<31) // fs.ModeDir
	case 3:
		tree.Add(p, 1<<27|0o777).Text = randomPath(r) // fs.ModeSymlink
	case 4:
		tree.Add(p, 1<<27|0o777).Text = []string{"..", "a", "../b", ".", "b/a", "../../u"}[r.Intn(6)]
	case 5:
		files := tree.Paths()
		other := tree.Nodes[files[r.Intn(len(files))]]
		if other.Mode.IsRegular() {
			tree.Add(p, 0o644)
			tree.Nodes[p] = other
			other.more++
		}
	}
}

// canMake reports whether every parent of p is, or can become, a directory.
func canMake(tree *Tree, p string) bool {
	for up := range pathname.Ups(pathname.Parent(p)) {
		if n := tree.Nodes[up]; n != nil && !n.Mode.IsDir() {
			return false
		}
	}
	return true
}

// RandomPolicy has a few rules over paths of a host.
func RandomPolicy(r *rand.Rand, tree *Tree) rootfs.Policy {
	all := tree.Paths()
	pick := func() string {
		if p := all[r.Intn(len(all))]; r.Intn(4) > 0 && p != "/" {
			return p
		}
		return randomPath(r)
	}
	p := rootfs.Policy{Base: rootfs.Base{Kind: []string{rootfs.BaseNone, rootfs.BaseNone, rootfs.BaseHost, rootfs.BaseSystem}[r.Intn(4)]}, Missing: "skip"}
	for i := range 1 + r.Intn(8) {
		g := rootfs.Grant{Path: pick(), From: fmt.Sprint("rule ", i)}
		switch r.Intn(7) {
		case 0:
			p.Read = append(p.Read, g)
		case 1:
			p.Write = append(p.Write, g)
		case 2, 3:
			p.Deny = append(p.Deny, g)
		case 4:
			p.Tmpfs = append(p.Tmpfs, rootfs.Tmpfs{Path: g.Path, From: g.From})
		case 5:
			p.Binds = append(p.Binds, rootfs.Bind{Source: g.Path, Target: randomPath(r), Writable: r.Intn(2) == 0, From: g.From})
		case 6:
			if r.Intn(3) == 0 {
				p.Secrets = append(p.Secrets, g)
			}
		}
	}
	return p
}
