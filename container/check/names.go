package check

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// addNames adds, for each secret and denied file, the names under which the sandbox's mounts have its location in the file
// system. It asks the kernel what is mounted, and not the plan, so that the checks fail where the plan is wrong: a second
// mount on the host gives a directory a name that does not say what it shows.
func (c *Checker) addNames() error {
	hidden, known := c.hidden()
	if len(hidden) == 0 {
		return nil
	}
	s, err := c.sb.Shows()
	if err != nil {
		return err
	}
	n := &otherNames{c, known, map[hostfs.Location][]string{}, map[hostfs.Location]hooks.Path{}}
	for _, m := range s.There {
		if !m.Within(s.State) { // else it is a mask; the state directory may lie in a denied directory
			n.mounts[m.Location] = append(n.mounts[m.Location], m.Target)
		}
	}
	own := map[uint64]hostfs.Mount{}
	for _, m := range s.Own {
		own[uint64(m.ID)] = m
	}
	for _, p := range hidden {
		at, ok := locationOf(p.Host, own)
		if !ok {
			continue // it is gone; its own name is looked at all the same
		}
		if n.hidden[at].Kind != hooks.Secret {
			n.hidden[at] = p
		}
		n.whole(p, at)
	}
	n.parts()
	return nil
}

// hidden lists the secrets and denied files, and all names that are looked at already.
func (c *Checker) hidden() (list []hooks.Path, known map[string]bool) {
	known = map[string]bool{}
	for _, p := range c.subject.Paths {
		if p.Kind == hooks.Secret || p.Kind == hooks.Mask {
			known[p.Inside] = true
		}
		if p.Kind == hooks.Secret && p.Host != "" {
			list = append(list, p)
		}
	}
	for _, host := range c.subject.Denied { // not what stands under a mask: that may be there for what a bind shows
		list = append(list, hooks.Path{Kind: hooks.OtherName, Host: host})
	}
	return list, known
}

// locationOf finds the location of a host path, by our own mounts. A link is not followed.
func locationOf(path string, own map[uint64]hostfs.Mount) (hostfs.Location, bool) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &st)
	m, ok := own[st.Mnt_id]
	if err != nil || !ok {
		return hostfs.Location{}, false
	}
	return m.Locate(path)
}

// otherNames are those that the sandbox's mounts give to what is hidden.
type otherNames struct {
	*Checker
	known  map[string]bool
	mounts map[hostfs.Location][]string // what is mounted inside → where
	hidden map[hostfs.Location]hooks.Path
}

// whole adds the names of mounts that show a location or a directory above it.
func (n *otherNames) whole(p hooks.Path, at hostfs.Location) {
	for up := at; ; up.Path = filepath.Dir(up.Path) {
		for _, target := range n.mounts[up] {
			n.add(p, filepath.Join(target, strings.TrimPrefix(at.Path, up.Path)), "")
		}
		if up.Path == "/" {
			return
		}
	}
}

// parts adds the mounts of what lies in a hidden directory.
func (n *otherNames) parts() {
	for m, targets := range n.mounts {
		for up := m; up.Path != "/"; {
			up.Path = filepath.Dir(up.Path)
			p, ok := n.hidden[up]
			for _, target := range targets {
				if ok {
					n.add(p, target, strings.TrimPrefix(m.Path, up.Path))
				}
			}
		}
	}
}

func (n *otherNames) add(p hooks.Path, inside, part string) {
	if n.known[inside] {
		return
	}
	n.known[inside] = true
	other := hooks.Path{Kind: hooks.OtherName, Inside: inside, Host: filepath.Join(p.Host, part)}
	if p.Kind == hooks.Secret {
		other.Kind = hooks.Secret
	}
	n.subject.Paths = append(n.subject.Paths, other)
	n.facts.Paths = append(n.facts.Paths, hooks.PathSeen{Outside: look(other)})
}
