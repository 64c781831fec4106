package container

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/sandboxrun/sandboxrun/container/idmap"
	"github.com/sandboxrun/sandboxrun/spec"
)

// No two sandboxes of a state directory have programs of one id.
func TestReserveID(t *testing.T) {
	s, err := OpenStore(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plan := &spec.Plan{Exec: spec.Exec{UID: idmap.FirstID, OwnID: true}}
	for i, name := range []string{"one", "two"} {
		lock, err := s.reserve(name)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		err = s.reserveID(name, plan)
		var e *Error
		if (i == 0) != (err == nil) || i == 1 && (!errors.As(err, &e) || e.Hint == "") {
			t.Error(name, err)
		}
	}
	plan.Exec.OwnID = false
	if err := s.reserveID("two", plan); err != nil {
		t.Error(err)
	}
}
