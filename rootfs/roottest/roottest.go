// Package roottest has made-up hosts and policies for tests. Only tests import it. It imports of ours rootfs, hostfs and pathname.
package roottest

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// Tree is a host made up of nodes. It enforces Tree's contract: no path it is asked for goes through a link.
type Tree struct {
	Nodes  map[string]*Node
	Table  []hostfs.Mount
	nextIn uint64
	// Content is whether files can be read. Each has its path in it.
	Content bool
}

// Node is a file, directory or link of a Tree.
type Node struct {
	Mode fs.FileMode
	Text string // of a link, or the content of a file
	UID  int
	GID  int
	ino  uint64
	more uint64 // hard links beside the first
	Err  error
}

// Host builds a tree from lines: "d /dir", "f /file", "l /link target", "h /name /file" (a hard link), "s /socket",
// "c /device", "p /fifo", "m /mount/point" (a directory that is one), "b /mount/point /dir" (a bind mount). Parents are made; later lines win.
func Host(t testing.TB, lines ...string) *Tree {
	t.Helper()
	f := &Tree{Nodes: map[string]*Node{}}
	f.AddMount("0:1", "/", "/")
	f.Add("/", fs.ModeDir|0o755)
	for _, line := range lines {
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "d":
			f.Add(rest, fs.ModeDir|0o755)
		case "f":
			f.Add(rest, 0o644)
		case "s":
			f.Add(rest, fs.ModeSocket|0o755)
		case "p":
			f.Add(rest, fs.ModeNamedPipe|0o644)
		case "c":
			f.Add(rest, fs.ModeDevice|fs.ModeCharDevice|0o666)
		case "m":
			f.Add(rest, fs.ModeDir|0o755)
			f.AddMount(fmt.Sprint("m", len(f.Table)), "/", rest)
		case "l":
			at, text, _ := strings.Cut(rest, " ")
			f.Add(at, fs.ModeSymlink|0o777).Text = text
		case "h":
			at, file, _ := strings.Cut(rest, " ")
			f.Add(at, 0o644)
			f.Nodes[at] = f.Nodes[file]
			f.Nodes[at].more++
		case "b":
			at, source, _ := strings.Cut(rest, " ")
			f.bind(at, source)
		default:
			t.Fatalf("bad line %q", line)
		}
	}
	return f
}

// AddMount adds a mount of the host below those that are there.
func (f *Tree) AddMount(dev, root, target string) {
	up := hostfs.Mount{}
	for _, m := range f.Table {
		if pathname.Within(target, m.Target) && len(m.Target) >= len(up.Target) {
			up = m
		}
	}
	f.Table = append(f.Table, hostfs.Mount{ID: len(f.Table) + 1, Parent: up.ID, Location: hostfs.Location{Dev: dev, Path: root}, Target: target})
}

// bind shows what is at source a second time.
func (f *Tree) bind(at, source string) {
	if f.Nodes[pathname.Parent(at)] == nil {
		f.Add(pathname.Parent(at), fs.ModeDir|0o755)
	}
	place := hostfs.NewLocations(f, f.Table).Of(source)
	for p, n := range maps.Clone(f.Nodes) {
		if pathname.Within(p, source) {
			f.Nodes[pathname.Rebase(p, source, at)] = n
		}
	}
	f.AddMount(place.Dev, place.Path, at)
}

// Add makes a node, and its parents.
func (f *Tree) Add(p string, mode fs.FileMode) *Node {
	if p != "/" {
		if up := f.Nodes[pathname.Parent(p)]; up == nil {
			f.Add(pathname.Parent(p), fs.ModeDir|0o755)
		}
	}
	f.nextIn++
	n := &Node{Mode: mode, ino: f.nextIn}
	f.Nodes[p] = n
	return n
}

func (f *Tree) node(p string) (*Node, error) {
	if !pathname.Clean(p) {
		panic(fmt.Sprintf("Tree asked for an unclean path %q", p))
	}
	for up := range pathname.Ups(pathname.Parent(p)) {
		n := f.Nodes[up]
		if n != nil && n.Mode&fs.ModeSymlink != 0 {
			panic(fmt.Sprintf("Tree asked for %q, which goes through the link %q", p, up))
		}
		if n != nil && !n.Mode.IsDir() {
			return nil, fs.ErrNotExist
		}
	}
	n := f.Nodes[p]
	if n == nil {
		return nil, fmt.Errorf("lstat %s: %w", p, fs.ErrNotExist)
	}
	return n, n.Err
}

// Lstat implements hostfs.Tree.
func (f *Tree) Lstat(p string) (hostfs.Info, error) {
	n, err := f.node(p)
	if err != nil {
		return hostfs.Info{}, err
	}
	return hostfs.Info{Mode: n.Mode, UID: n.UID, GID: n.GID, Dev: 1, Ino: n.ino, Nlink: 1 + n.more, Modified: int64(n.ino)}, nil
}

// Readlink implements hostfs.Tree.
func (f *Tree) Readlink(p string) (string, error) {
	n, err := f.node(p)
	if err != nil {
		return "", err
	}
	return n.Text, nil
}

// ReadDir implements hostfs.Tree.
func (f *Tree) ReadDir(p string) ([]string, error) {
	if _, err := f.node(p); err != nil {
		return nil, err
	}
	var names []string
	for q := range f.Nodes {
		if q != "/" && pathname.Parent(q) == p {
			names = append(names, q[strings.LastIndexByte(q, '/')+1:])
		}
	}
	slices.Sort(names)
	return names, nil
}

// ReadFile implements hostfs.Tree.
func (f *Tree) ReadFile(p string) ([]byte, error) {
	if n := f.Nodes[p]; n != nil && n.Text != "" && n.Mode.IsRegular() {
		return []byte(n.Text), nil
	}
	if f.Nodes[p] == nil || !f.Content {
		return nil, fs.ErrNotExist
	}
	return []byte(p), nil
}

// Mounts implements hostfs.Tree.
func (f *Tree) Mounts() []hostfs.Mount { return f.Table }

// Paths lists all nodes, sorted.
func (f *Tree) Paths() []string { return slices.Sorted(maps.Keys(f.Nodes)) }

// Rules builds a policy from lines, as the cases do: "read P", "write P", "deny P", "tmpfs P", "bind S T [rw]",
// "secret P", "workdir P", "workspace S P", "base KIND [DIR]", "skip". A rule's From is its line.
func Rules(t testing.TB, lines ...string) rootfs.Policy {
	t.Helper()
	p := rootfs.Policy{Base: rootfs.Base{Kind: rootfs.BaseNone}, Missing: "error"}
	for _, line := range lines {
		kind, rest, _ := strings.Cut(line, " ")
		g := rootfs.Grant{Path: rest, From: "rule " + kind}
		words := append(strings.Split(rest, " "), "", "")
		switch kind {
		case "read":
			p.Read = append(p.Read, g)
		case "write":
			p.Write = append(p.Write, g)
		case "deny":
			p.Deny = append(p.Deny, g)
		case "gone":
			p.Gone = append(p.Gone, g)
		case "secret":
			p.Secrets = append(p.Secrets, g)
		case "tmpfs":
			p.Tmpfs = append(p.Tmpfs, rootfs.Tmpfs{Path: rest, From: g.From})
		case "bind":
			p.Binds = append(p.Binds, rootfs.Bind{Source: words[0], Target: words[1], Writable: words[2] == "rw", From: g.From})
		case "workdir":
			p.Workdir = g
		case "workspace":
			p.Workspace = &rootfs.Workspace{Source: words[0], Path: words[1], Lifetime: words[2], From: g.From}
		case "base":
			p.Base = rootfs.Base{Kind: words[0], Dir: words[1]}
		case "skip":
			p.Missing = "skip"
		default:
			t.Fatalf("bad rule %q", line)
		}
	}
	return p
}

// Mounts draws what the policy asked for, one mount a line, without what every sandbox has.
func Mounts(v *rootfs.View) []string {
	var out []string
	for _, m := range v.Mounts {
		if m.From == rootfs.FromDefault && m.Kind == rootfs.MountTmpfs && (m.Target == "/tmp" || m.Target == "/home/u" || m.Target == "/var/tmp") {
			continue
		}
		out = append(out, MountLine(m))
	}
	return out
}

// MountLine draws one mount.
func MountLine(m rootfs.Mount) string {
	slash := ""
	if m.Dir {
		slash = "/"
	}
	without := ""
	if len(m.Without) > 0 {
		without = " without " + strings.Join(m.Without, " ")
	}
	mode := "ro"
	if m.Writable {
		mode = "rw"
	}
	switch {
	case m.Kind != rootfs.MountBind:
		return fmt.Sprintf("%s %s%s", m.Kind, m.Target, slash)
	case m.Source == "":
		return fmt.Sprintf("generated %s", m.Target)
	case m.Source == m.Target:
		return fmt.Sprintf("%s %s%s%s", mode, m.Target, slash, without)
	}
	return fmt.Sprintf("%s %s%s from %s%s", mode, m.Target, slash, m.Source, without)
}

// Entries draws the entries of the root below dir.
func Entries(v *rootfs.View, dir string) []string {
	var out []string
	for _, e := range v.Entries {
		switch {
		case !pathname.Within(e.Path, dir):
		case e.Kind == rootfs.EntrySymlink:
			out = append(out, e.Path+" -> "+e.Content)
		case e.Kind == rootfs.EntryDir:
			out = append(out, e.Path+"/")
		default:
			out = append(out, e.Path)
		}
	}
	return out
}

// Same compares two lists.
func Same(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got  %s\n want %s", what, strings.Join(got, "\n      "), strings.Join(want, "\n      "))
	}
}
