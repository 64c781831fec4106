package rootfs

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// restBelow gives what is left of a path behind a directory, by whole components; "." is the directory itself.
func restBelow(dir, name string) (string, bool) {
	if name == dir {
		return ".", true
	}
	rest, ok := strings.CutPrefix(name, strings.TrimSuffix(dir, "/")+"/")
	return rest, ok
}

// HostOf says which path of the host a path inside stands for, also where nothing is there yet. Both are absolute; links are not
// followed.
func (v *View) HostOf(inside string) (host string, writable, ok bool) {
	inside = path.Clean(inside)
	var found *Mount
	for i := range v.Mounts {
		m := &v.Mounts[i]
		if _, in := restBelow(m.Target, inside); in && (found == nil || len(m.Target) >= len(found.Target)) {
			found = m
		}
	}
	if found == nil || found.Kind != MountBind || found.Source == "" {
		return "", false, false
	}
	rest, _ := restBelow(found.Target, inside)
	if rest != "." && !found.Dir {
		return "", false, false
	}
	return path.Join(found.Source, rest), found.Writable, true
}

// InsideOf says where a path of the host is inside: by the longest source that holds it, unless something else hides it there.
func (v *View) InsideOf(host string) (inside string, writable, ok bool) {
	host = path.Clean(host)
	var binds []Mount
	for _, m := range v.Mounts {
		if _, in := restBelow(m.Source, host); in && m.Kind == MountBind && m.Source != "" {
			binds = append(binds, m)
		}
	}
	slices.SortStableFunc(binds, func(a, b Mount) int { return cmp.Compare(len(b.Source), len(a.Source)) })
	for _, m := range binds {
		rest, _ := restBelow(m.Source, host)
		at := path.Join(m.Target, rest)
		if back, writable, ok := v.HostOf(at); ok && back == host {
			return at, writable, true
		}
	}
	return "", false, false
}
