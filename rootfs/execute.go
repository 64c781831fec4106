package rootfs

import (
	"errors"
	"fmt"
	"slices"
)

// Executes lists the files that the kernel executes when a program starts: the program itself, first, the interpreters of scripts, also
// those behind "#!/usr/bin/env", and ELF loaders. Libraries are mapped and not executed.
func (x *Explainer) Executes(a Asked) ([]*Explanation, error) {
	x.prepare()
	e := x.Explain(a.Name)
	switch {
	case !e.Inside():
		return nil, fmt.Errorf("%q is %s", a.Name, e.Is)
	case e.Type != typeFile || e.Kind != PlaceHost || e.info.Mode.Perm()&0o111 == 0:
		return nil, fmt.Errorf("%q is no file that can be executed", a.Name)
	}
	f, err := x.open(e)
	if err != nil {
		return nil, fmt.Errorf("%q cannot be read, so which loader it needs is not known: %w", a.Name, err)
	}
	_ = f.Close() // it was not written
	l := &loading{Explainer: x, p: &Program{Needs: []Need{}}, a: a}
	l.program(a.Name, 0)
	if l.failed {
		return nil, errors.New(l.p.Why[len(l.p.Why)-1])
	}
	list := []*Explanation{e}
	for _, n := range l.p.Needs {
		if n.Kind == NeedLibrary || n.Path == "" {
			continue
		}
		if e := x.Explain(n.Path); e.Inside() && e.Type == typeFile && e.Kind == PlaceHost {
			list = append(list, e)
		}
	}
	return list, nil
}

// hands of the programs, and the host paths that they can write.
func (v *View) hands(tree Tree) (*hands, []string) {
	sources := slices.Clone(v.writable)
	for _, m := range v.Mounts {
		if m.Kind == MountBind && m.Source != "" && m.Writable {
			sources = append(sources, m.Source)
		}
	}
	return newHands(tree, newPlaces(tree, tree.Mounts()), sources), sources
}

// ForbidExecution marks the mounts of all that the program can write: also of read-only ones that show the same files. The error says which
// mount shows such files beside others.
func (v *View) ForbidExecution(tree Tree) error {
	h, sources := v.hands(tree)
	v.Mounts = slices.Clone(v.Mounts)
	for i := range v.Mounts {
		m := &v.Mounts[i]
		m.NoExec = !m.Pin && (m.Writable || m.Kind == MountTmpfs || m.Source != "" && (h.names[m.Source] || h.hold(m.Source)))
	}
	for _, s := range sources {
		for _, name := range v.Inside(s) {
			if p, err := v.Lookup(tree, name); err == nil && p.Mount != nil && !p.Mount.NoExec && !p.Mount.Pin {
				return fmt.Errorf("%s of the program is %s, below %s, where files could be mapped as code", shown(name), shown(s), p.Mount.From)
			}
		}
	}
	return nil
}

// Changeable returns a function that says how the program could change what a file has in it; empty: it cannot.
func (v *View) Changeable(tree Tree) func(*Explanation) string {
	h, sources := v.hands(tree)
	return func(e *Explanation) string {
		info, err := tree.Lstat(e.Host)
		switch {
		case err != nil:
			return err.Error()
		case e.spot.Writable, h.hold(e.Host), h.names[e.Host], h.nodes[inode{info.Dev, info.Ino}]:
			return "it is in a grant that programs can write"
		case info.Nlink > 1:
			if link := h.hardLink(e.Host, inode{info.Dev, info.Ino}, sources); link != "" {
				return fmt.Sprintf("%s is a hard link of it, in a grant that programs can write", shown(link))
			}
		}
		return ""
	}
}

// hardLink searches the sources for another name of a file. File systems other than the file's are left out: a dead network mount
// would hang.
func (h *hands) hardLink(host string, file inode, sources []string) (found string) {
	skip := map[string]bool{}
	for target, m := range h.places.visible {
		skip[target] = m.Dev != h.places.mount(host).Dev
	}
	w := &linkWalk{
		tree: &memoTree{Tree: h.tree, seen: map[string]statResult{}}, skip: skip, wanted: map[inode]string{file: ""},
		found: func(name, _ string) { found = name },
	}
	for _, s := range sortedUnique(slices.Clone(sources)) {
		w.walk(s)
	}
	return found
}
