package container

import (
	"github.com/sandboxrun/sandboxrun/container/detached"
	"github.com/sandboxrun/sandboxrun/container/stream"
)

// This file has the execs that go on without the command that started them; package detached keeps them.

// Detached finds a detached exec of a sandbox, which may have ended; an empty name is the latest.
func (s *Store) Detached(id, name string) (*detached.Exec, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	if _, err := s.root.Lstat(id); err != nil {
		return nil, s.noState(id)
	}
	return s.detached(id).Find(name)
}

// detached are the detached execs of a sandbox.
func (s *Store) detached(id string) detached.Execs {
	return detached.Execs{
		Root: s.root, ID: id, Alive: func() bool { return s.alive(id) },
		Output: func() int64 {
			st, err := s.load(id)
			if err != nil {
				return stream.DefaultOutput
			}
			return outputLimit(st.Launch.Limits)
		},
	}
}
