package rootfs

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// Shown is a path inside, and what of the host is at and below it.
type Shown struct {
	Inside   string `json:"inside"`
	Host     string `json:"host,omitempty"` // empty: nothing of the host
	Link     string `json:"link,omitempty"` // it is a symlink of the view's own, with this target
	Dir      bool   `json:"dir,omitempty"`
	Writable bool   `json:"writable,omitempty"`
}

// Names translate paths of the host to paths inside, and back. An entry comes before those below it.
type Names []Shown

// Shown lists what of the host is where inside.
func (v *View) Shown() Names {
	var n Names
	for _, e := range v.Entries {
		if e.Kind == EntrySymlink {
			n = append(n, Shown{Inside: e.Path, Link: e.Content})
		}
	}
	for _, m := range v.Mounts {
		one := Shown{Inside: m.Target, Dir: m.Dir}
		if m.Kind == MountBind && !m.LeftOut {
			one.Host, one.Writable = m.Source, m.Writable
		}
		if host, writable, _ := n.HostOf(m.Target); one.Host == "" || host != one.Host || writable != one.Writable { // else its parent says so
			n = append(n, one)
		}
	}
	for _, d := range v.Absent {
		n = append(n, Shown{Inside: d.Inside})
	}
	for _, g := range v.Gone {
		n = append(n, Shown{Inside: g.Inside})
	}
	return n
}

// HostOf says which path of the host a path inside stands for, also where nothing is there yet. Both are absolute. Of symlinks
// only those are followed that the view itself makes, such as /bin.
func (n Names) HostOf(inside string) (host string, writable, ok bool) {
	inside = path.Clean(inside)
	for range pathname.MaxLinks {
		var found *Shown
		for i := range n {
			s := &n[i]
			if pathname.Within(inside, s.Inside) && (found == nil || len(s.Inside) >= len(found.Inside)) {
				found = s
			}
		}
		if found == nil {
			return "", false, false
		}
		rest, _ := pathname.Rest(inside, found.Inside)
		switch {
		case found.Link != "" && path.IsAbs(found.Link):
			inside = path.Join(found.Link, rest)
		case found.Link != "":
			inside = path.Join(path.Dir(found.Inside), found.Link, rest)
		case found.Host == "" || rest != "." && !found.Dir:
			return "", false, false
		default:
			return path.Join(found.Host, rest), found.Writable, true
		}
	}
	return "", false, false
}

// InsideOf says where a path of the host is inside: by the longest source that holds it, unless something else hides it there.
// Symlinks of the host are not followed.
func (n Names) InsideOf(host string) (inside string, writable, ok bool) {
	host = path.Clean(host)
	for _, s := range n.longest() {
		rest, in := pathname.Rest(host, s.Host)
		if !in {
			continue
		}
		at := path.Join(s.Inside, rest)
		if back, writable, ok := n.HostOf(at); ok && back == host {
			return at, writable, true
		}
	}
	return "", false, false
}

// longest are the entries that have a source, the longest source first.
func (n Names) longest() []Shown {
	list := slices.DeleteFunc(slices.Clone(n), func(s Shown) bool { return s.Host == "" })
	slices.SortStableFunc(list, func(a, b Shown) int { return cmp.Compare(len(b.Host), len(a.Host)) })
	return list
}

// Inside is InsideOf, first of the path as it is and then of what resolve makes of it, which follows the host's symlinks.
func (n Names) Inside(host string, resolve func(string) string) (inside string, writable, ok bool) {
	if !strings.Contains(host+"/", "/../") { // whose meaning depends on symlinks
		if inside, writable, ok = n.InsideOf(host); ok {
			return inside, writable, ok
		}
	}
	return n.InsideOf(resolve(host))
}

// Translate replaces each path of the host in a text by its name inside, if it has one. A path is absolute, begins at the beginning of
// the text, behind one of before, or behind "-" and a letter, and ends at one of after. The path of a URL is no path of the
// host, unless the URL begins with file:///.
func (n Names) Translate(text string, resolve func(string) string) string {
	t := translator{n, n.longest(), resolve}
	var out strings.Builder
	for at := 0; at < len(text); {
		with, size := t.at(text, at)
		out.WriteString(with)
		at += size
	}
	return out.String()
}

const (
	before = "=:,;\"'`()<>[]{}|&@ \t\n"
	after  = ":,;\"'`()<>[]{}|& \t\n"
)

type translator struct {
	names   Names
	sources []Shown // the longest first
	resolve func(string) string
}

// at gives what replaces the text from a byte on, and how much of it.
func (t *translator) at(text string, at int) (with string, size int) {
	rest := text[at:]
	starts := at == 0 || strings.IndexByte(before, text[at-1]) >= 0 || at == 2 && text[0] == '-' && text[1] != '-'
	switch {
	case rest[0] != '/' || !starts:
		return rest[:1], 1
	case !strings.HasPrefix(rest, "//") || !strings.HasSuffix(text[:at], ":"):
		return t.path(rest)
	case strings.HasPrefix(rest, "///") && strings.HasSuffix(text[:at], "file:"):
		with, size = t.path(rest[2:])
		return rest[:2] + with, size + 2
	}
	size = pathEnd(rest)
	return rest[:size], size
}

// path translates the path that a text begins with. A source may have characters of after in it.
func (t *translator) path(text string) (with string, size int) {
	for _, s := range t.sources {
		rest, ok := strings.CutPrefix(text, s.Host)
		if !ok || rest != "" && rest[0] != '/' && strings.IndexByte(after, rest[0]) < 0 {
			continue
		}
		size = len(s.Host) + pathEnd(rest)
		if with, ok = t.whole(text[:size]); ok {
			return with, size
		}
	}
	size = pathEnd(text)
	if with, ok := t.whole(text[:size]); ok {
		return with, size
	}
	return text[:size], size
}

func pathEnd(text string) int {
	if at := strings.IndexAny(text, after); at >= 0 {
		return at
	}
	return len(text)
}

// whole keeps a "/" or "/." at the end, because some programs see a difference.
func (t *translator) whole(name string) (string, bool) {
	clean := name
	for len(clean) > 1 && (strings.HasSuffix(clean, "/") || strings.HasSuffix(clean, "/.")) {
		clean = clean[:max(1, strings.LastIndexByte(clean, '/'))]
	}
	inside, _, ok := t.names.Inside(clean, t.resolve)
	if end := name[len(clean):]; end != "" {
		inside = strings.TrimSuffix(inside, "/") + end
	}
	return inside, ok
}
