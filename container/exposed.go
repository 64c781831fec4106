package container

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/spec"
)

// A state directory that a grant holds is masked. The kernel drops the mask when somebody outside removes or moves the directory,
// and a program that runs then can make a directory of the same name: all that is in it would be the program's. So no sandbox is
// made in a state directory that a program can write.

const codeExposed = "state_exposed"

// IsKept refuses a state directory that a running sandbox of the caller's lets its programs write.
func (s *Store) IsKept(h *spec.Host) error {
	g, ok := h.Ground.(*ground)
	if !ok {
		return nil
	}
	running := g.inUse().mounts
	if len(running) == 0 {
		return nil
	}
	dir, err := s.root.Open(".")
	if err != nil {
		return fmt.Errorf("open state directory: %w", cause(err))
	}
	defer dir.Close()
	place, err := placeOf(dir, g.mounts)
	if err != nil {
		return fail(codeExposed, "was it removed? try again", "find out where the state directory %q is: %w", s.path, err)
	}
	for _, r := range running {
		inside, err := exposedIn(r.lines, place)
		if err != nil {
			return fmt.Errorf("read the mounts of process %s: %w", filepath.Base(r.proc), err)
		}
		if inside != "" {
			return fail(codeExposed, "end that sandbox: kill -KILL "+filepath.Base(r.proc)+", look at what the directory holds and remove it; "+
				"or keep the state elsewhere: --root DIR",
				"programs in sandbox %s can write the state directory %q, as %q", nameOf(r.proc), s.path, inside)
		}
	}
	return nil
}

// exposedIn is where a program can write a place by one of these mounts, and no mount covers it there. Mounts above that one do
// not count: to look at them too would not make it safer.
func exposedIn(mountinfo []byte, place spec.Place) (string, error) {
	if !bytes.Contains(mountinfo, []byte(" "+place.Dev+" ")) {
		return "", nil
	}
	list, err := readMounts(bytes.NewReader(mountinfo))
	if err != nil {
		return "", err
	}
	for _, m := range list {
		if !m.writable || !place.Within(m.Place) {
			continue
		}
		inside := filepath.Join(m.target, strings.TrimPrefix(place.Path, m.Path))
		if !covered(list, m.target, inside) {
			return inside, nil
		}
	}
	return "", nil
}

// covered says whether a mount stands at a path, or above it but below a target.
func covered(list []mountLine, target, inside string) bool {
	for up := inside; up != target && up != "/"; up = filepath.Dir(up) {
		for _, m := range list {
			if m.target == up {
				return true
			}
		}
	}
	return false
}

// nameOf is a sandbox's id, for messages.
func nameOf(proc string) string {
	if dir, err := os.Open(proc); err == nil {
		defer dir.Close()
		if sealed, err := forkexec.ReadSealed(dir); err == nil {
			return fmt.Sprintf("%q", sealed.ID)
		}
	}
	return "of process " + filepath.Base(proc)
}
