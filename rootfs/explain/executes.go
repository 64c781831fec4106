package explain

import (
	"errors"
	"fmt"

	"github.com/sandboxrun/sandboxrun/rootfs"
)

// Executes lists the files that the kernel executes when a program starts: the program itself, first, the interpreters of scripts, also
// those behind "#!/usr/bin/env", and ELF loaders. Libraries are mapped and not executed.
func (x *Explainer) Executes(a Asked) ([]*Explanation, error) {
	x.prepare()
	e := x.Explain(a.Name)
	switch {
	case !e.Inside():
		return nil, fmt.Errorf("%q is %s", a.Name, e.Is)
	case e.Type != typeFile || e.Kind != rootfs.PlaceHost || e.info.Mode.Perm()&0o111 == 0:
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
		if e := x.Explain(n.Path); e.Inside() && e.Type == typeFile && e.Kind == rootfs.PlaceHost {
			list = append(list, e)
		}
	}
	return list, nil
}
