package build

import "strings"

// made is what exists in a sandbox's own root and in its tmpfs mounts: a tree of names, so that a mount that covers many drops them
// at once.
type made struct {
	here  bool
	below map[string]*made
}

// find returns the node of a path, if something was made at it or below it.
func (m *made) find(path string) *made {
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if name != "" {
			if m = m.below[name]; m == nil {
				return nil
			}
		}
	}
	return m
}

func (m *made) has(path string) bool {
	at := m.find(path)
	return at != nil && at.here
}

// add notes that something was made.
func (m *made) add(path string) *made {
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if name == "" {
			continue
		}
		next := m.below[name]
		if next == nil {
			next = &made{}
			if m.below == nil {
				m.below = map[string]*made{}
			}
			m.below[name] = next
		}
		m = next
	}
	m.here = true
	return m
}

// mount notes a mount, which covers what was below it.
func (m *made) mount(path string) { m.add(path).below = nil }
