package container

import (
	"path/filepath"
	"strconv"

	"github.com/sandboxrun/sandboxrun/container/bundle"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/spec"
)

// idFile holds the id of a sandbox's program, in the sandbox's directory.
const idFile = "uid"

// reserveID notes the id of a sandbox's program, and refuses one that another sandbox has.
func (s *Store) reserveID(id string, plan *spec.Plan) error {
	if !plan.Exec.OwnID {
		return nil
	}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	ids, err := s.dirs()
	if err != nil {
		return err
	}
	number := strconv.Itoa(plan.Exec.UID)
	for _, other := range ids {
		if data, err := s.root.ReadFile(filepath.Join(other, idFile)); err == nil && string(data) == number {
			return fail(fault.SandboxUnavailable, "start it again: another will be chosen", "sandbox %q has the id that was chosen for the program, %s", other, number)
		}
	}
	return bundle.WriteNew(s.root, filepath.Join(id, idFile), number, 0o400)
}
