package rootfs

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
)

// fakeTree is a host made up of nodes. It enforces Tree's contract: no path it is asked for goes through a link.
type fakeTree struct {
	nodes  map[string]*fakeNode
	mounts []HostMount
	nextIn uint64
	// content is whether files can be read. Each has its path in it.
	content bool
}

type fakeNode struct {
	mode fs.FileMode
	text string // of a link
	uid  int
	gid  int
	ino  uint64
	more uint64 // hard links beside the first
	err  error
}

// host builds a tree from lines: "d /dir", "f /file", "l /link target", "h /name /file" (a hard link), "s /socket",
// "c /device", "p /fifo", "m /mount/point" (a directory that is one), "b /mount/point /dir" (a bind mount). Parents are made; later lines win.
func host(t testing.TB, lines ...string) *fakeTree {
	t.Helper()
	f := &fakeTree{nodes: map[string]*fakeNode{}}
	f.mount("0:1", "/", "/")
	f.add("/", fs.ModeDir|0o755)
	for _, line := range lines {
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "d":
			f.add(rest, fs.ModeDir|0o755)
		case "f":
			f.add(rest, 0o644)
		case "s":
			f.add(rest, fs.ModeSocket|0o755)
		case "p":
			f.add(rest, fs.ModeNamedPipe|0o644)
		case "c":
			f.add(rest, fs.ModeDevice|fs.ModeCharDevice|0o666)
		case "m":
			f.add(rest, fs.ModeDir|0o755)
			f.mount(fmt.Sprint("m", len(f.mounts)), "/", rest)
		case "l":
			at, text, _ := strings.Cut(rest, " ")
			f.add(at, fs.ModeSymlink|0o777).text = text
		case "h":
			at, file, _ := strings.Cut(rest, " ")
			f.add(at, 0o644)
			f.nodes[at] = f.nodes[file]
			f.nodes[at].more++
		case "b":
			at, source, _ := strings.Cut(rest, " ")
			f.bind(at, source)
		default:
			t.Fatalf("bad line %q", line)
		}
	}
	return f
}

// mount adds a mount of the host below those that are there.
func (f *fakeTree) mount(dev, root, target string) {
	up := HostMount{}
	for _, m := range f.mounts {
		if within(target, m.Target) && len(m.Target) >= len(up.Target) {
			up = m
		}
	}
	f.mounts = append(f.mounts, HostMount{len(f.mounts) + 1, up.ID, dev, root, target})
}

// bind shows what is at source a second time.
func (f *fakeTree) bind(at, source string) {
	if f.nodes[parent(at)] == nil {
		f.add(parent(at), fs.ModeDir|0o755)
	}
	place := newPlaces(f, f.mounts).of(source)
	for p, n := range maps.Clone(f.nodes) {
		if within(p, source) {
			f.nodes[rebase(p, source, at)] = n
		}
	}
	f.mount(place.dev, place.path, at)
}

func (f *fakeTree) add(p string, mode fs.FileMode) *fakeNode {
	if p != "/" {
		if up := f.nodes[parent(p)]; up == nil {
			f.add(parent(p), fs.ModeDir|0o755)
		}
	}
	f.nextIn++
	n := &fakeNode{mode: mode, ino: f.nextIn}
	f.nodes[p] = n
	return n
}

func (f *fakeTree) node(p string) (*fakeNode, error) {
	if !clean(p) {
		panic(fmt.Sprintf("Tree asked for an unclean path %q", p))
	}
	for up := range ups(parent(p)) {
		n := f.nodes[up]
		if n != nil && n.mode&fs.ModeSymlink != 0 {
			panic(fmt.Sprintf("Tree asked for %q, which goes through the link %q", p, up))
		}
		if n != nil && !n.mode.IsDir() {
			return nil, fs.ErrNotExist
		}
	}
	n := f.nodes[p]
	if n == nil {
		return nil, fmt.Errorf("lstat %s: %w", p, fs.ErrNotExist)
	}
	return n, n.err
}

func (f *fakeTree) Lstat(p string) (Info, error) {
	n, err := f.node(p)
	if err != nil {
		return Info{}, err
	}
	return Info{Mode: n.mode, UID: n.uid, GID: n.gid, Dev: 1, Ino: n.ino, Nlink: 1 + n.more, Modified: int64(n.ino)}, nil
}

func (f *fakeTree) Readlink(p string) (string, error) {
	n, err := f.node(p)
	if err != nil {
		return "", err
	}
	return n.text, nil
}

func (f *fakeTree) ReadDir(p string) ([]string, error) {
	if _, err := f.node(p); err != nil {
		return nil, err
	}
	var names []string
	for q := range f.nodes {
		if q != "/" && parent(q) == p {
			names = append(names, q[strings.LastIndexByte(q, '/')+1:])
		}
	}
	slices.Sort(names)
	return names, nil
}

func (f *fakeTree) ReadFile(p string) ([]byte, error) {
	if f.nodes[p] == nil || !f.content {
		return nil, fs.ErrNotExist
	}
	return []byte(p), nil
}

func (f *fakeTree) Mounts() []HostMount { return f.mounts }

func (f *fakeTree) paths() []string { return slices.Sorted(maps.Keys(f.nodes)) }

// rules builds a policy from lines, as the cases do: "read P", "write P", "deny P", "tmpfs P", "bind S T [rw]",
// "secret P", "workdir P", "workspace S P", "base KIND [DIR]", "skip". A rule's From is its line.
func rules(t testing.TB, lines ...string) Policy {
	t.Helper()
	p := Policy{Base: Base{Kind: BaseNone}, Missing: "error"}
	for _, line := range lines {
		kind, rest, _ := strings.Cut(line, " ")
		g := Grant{Path: rest, From: "rule " + kind}
		words := append(strings.Split(rest, " "), "", "")
		switch kind {
		case "read":
			p.Read = append(p.Read, g)
		case "write":
			p.Write = append(p.Write, g)
		case "deny":
			p.Deny = append(p.Deny, g)
		case "secret":
			p.Secrets = append(p.Secrets, g)
		case "tmpfs":
			p.Tmpfs = append(p.Tmpfs, Tmpfs{Path: rest, From: g.From})
		case "bind":
			p.Binds = append(p.Binds, Bind{Source: words[0], Target: words[1], Writable: words[2] == "rw", From: g.From})
		case "workdir":
			p.Workdir = g
		case "workspace":
			p.Workspace = &Workspace{Source: words[0], Path: words[1], Lifetime: words[2], From: g.From}
		case "base":
			p.Base = Base{Kind: words[0], Dir: words[1]}
		case "skip":
			p.Missing = "skip"
		default:
			t.Fatalf("bad rule %q", line)
		}
	}
	return p
}

func request(tree Tree, p Policy) Request {
	return Request{
		Policy: p, Tree: tree, Hostname: "box", ResolvConf: "nameserver 127.0.0.1\n",
		User: Identity{UID: 1000, GID: 1000, Name: "u", Group: "g", Home: "/home/u"},
	}
}

func compileOK(t testing.TB, tree Tree, lines ...string) *View {
	t.Helper()
	v, err := Compile(request(tree, rules(t, lines...)))
	if err != nil {
		t.Fatalf("Compile(%q): %v", lines, err)
	}
	return v
}

// mounts draws what the policy asked for, one mount a line, without what every sandbox has.
func mounts(v *View) []string {
	var out []string
	for _, m := range v.Mounts {
		if m.From == fromDefault && m.Kind == MountTmpfs && (m.Target == "/tmp" || m.Target == "/home/u" || m.Target == "/var/tmp") {
			continue
		}
		out = append(out, mountLine(m))
	}
	return out
}

func mountLine(m Mount) string {
	slash := ""
	if m.Dir {
		slash = "/"
	}
	mode := "ro"
	if m.Writable {
		mode = "rw"
	}
	switch {
	case m.Kind != MountBind:
		return fmt.Sprintf("%s %s%s", m.Kind, m.Target, slash)
	case m.Source == "":
		return fmt.Sprintf("generated %s", m.Target)
	case m.Source == m.Target:
		return fmt.Sprintf("%s %s%s", mode, m.Target, slash)
	}
	return fmt.Sprintf("%s %s%s from %s", mode, m.Target, slash, m.Source)
}

// entries draws the entries of the root below dir.
func entries(v *View, dir string) []string {
	var out []string
	for _, e := range v.Entries {
		switch {
		case !within(e.Path, dir):
		case e.Kind == EntrySymlink:
			out = append(out, e.Path+" -> "+e.Content)
		case e.Kind == EntryDir:
			out = append(out, e.Path+"/")
		default:
			out = append(out, e.Path)
		}
	}
	return out
}

func same(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got  %s\n want %s", what, strings.Join(got, "\n      "), strings.Join(want, "\n      "))
	}
}
