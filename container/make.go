package container

import (
	"github.com/sandboxrun/sandboxrun/container/made"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Make makes what a policy wants on disk, and changes it to name that. plan is what the policy became before: it says what is
// denied, and where links lead. Without anything to be made it gives nil.
func (s *Store) Make(id string, p *policy.Policy, plan *spec.Plan) (*made.Directory, error) {
	if !made.Makes(p) {
		return nil, nil
	}
	if err := CheckID(id); err != nil {
		return nil, err
	}
	return s.made().Make(id, p, plan)
}

// made are the notes of what was made for its sandboxes.
func (s *Store) made() made.Notes { return made.Notes{Root: s.root} }
