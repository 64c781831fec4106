package container

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/hooks"
)

// addNames adds, for each secret and denied file, the names under which the sandbox's mounts have its place in the file
// system. It asks the kernel what is mounted, and not the plan, so that the checks fail where the plan is wrong: a second
// mount on the host gives a directory a name that does not tell what it shows.
func (c *checker) addNames() error {
	hidden, known := c.hidden()
	if len(hidden) == 0 {
		return nil
	}
	s, err := c.sb.shows()
	if err != nil {
		return err
	}
	for _, p := range hidden {
		at, err := s.placeOfPath(p.Host)
		if err != nil {
			continue // it is gone; its own name is looked at all the same
		}
		for _, n := range s.namesOf(at) {
			if known[n.Inside] {
				continue
			}
			known[n.Inside] = true
			n.Kind, n.Host = hooks.OtherName, filepath.Join(p.Host, n.Host)
			if p.Kind == hooks.Secret {
				n.Kind = hooks.Secret
			}
			c.subject.Paths = append(c.subject.Paths, n)
			c.facts.Paths = append(c.facts.Paths, hooks.PathSeen{Outside: look(n)})
		}
	}
	return nil
}

// hidden lists the secrets and denied files that are there, and all names that are looked at already.
func (c *checker) hidden() (list []hooks.Path, known map[string]bool) {
	known = map[string]bool{}
	for i, p := range c.subject.Paths {
		if (p.Kind != hooks.Secret && p.Kind != hooks.Mask) || p.Host == "" {
			continue
		}
		known[p.Inside] = true
		if c.facts.Paths[i].Outside.Err == nil {
			list = append(list, p)
		}
	}
	return list, known
}

// placeOfPath finds the place of a host path. A link is not followed.
func (s *shown) placeOfPath(path string) (place, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return place{}, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	return placeOf(f, s.own)
}

// namesOf lists the names inside that the sandbox's mounts give a place, and those of its parts that are mounted by
// themselves; Host is the part's path below the place.
func (s *shown) namesOf(p place) []hooks.Path {
	var list []hooks.Path
	for _, m := range s.there {
		if m.within(s.state) {
			continue // a mask; the state directory may lie in a denied directory
		}
		if p.within(m.place) {
			if rel, err := filepath.Rel(m.path, p.path); err == nil {
				list = append(list, hooks.Path{Inside: filepath.Join(m.target, rel)})
			}
		} else if m.within(p) {
			if rel, err := filepath.Rel(p.path, m.path); err == nil {
				list = append(list, hooks.Path{Inside: m.target, Host: rel})
			}
		}
	}
	return list
}
