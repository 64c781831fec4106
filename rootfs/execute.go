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

// Changeable returns a function that says how the program could change what a file has in it; empty: it cannot.
func (v *View) Changeable(tree Tree) func(*Explanation) string {
	var sources []string
	sources = append(sources, v.writable...)
	for _, m := range v.Mounts {
		if m.Kind == MountBind && m.Source != "" && m.Writable {
			sources = append(sources, m.Source)
		}
	}
	h := newHands(tree, newPlaces(tree, tree.Mounts()), sources)
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
