package container

import (
	"path/filepath"

	"github.com/sandboxrun/sandboxrun/container/build"
	"github.com/sandboxrun/sandboxrun/container/bundle"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/spec"
)

// base makes the directory in which process 1 starts, if it is not there.
func (s *Store) base() (string, error) {
	const name = ".base"
	dir := filepath.Join(s.path, name)
	if info, err := s.root.Lstat(name); err == nil {
		if !info.IsDir() {
			return "", fail(fault.StateUnusable, "remove it, or choose another directory with --root DIR", "%q is no directory: sandboxrun has not made it", dir)
		}
		if _, err := s.root.Lstat(filepath.Join(name, spec.EmptyFile)); err == nil {
			return dir, nil
		}
	}
	unlock, err := s.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := s.root.Lstat(name); err == nil {
		return dir, s.completeBase(name)
	}
	tmp := name + ".new"
	if err := s.root.RemoveAll(tmp); err != nil { // somebody was killed here
		return "", bundle.Error(err)
	}
	for _, d := range append([]string{""}, build.Dirs()...) {
		if err := s.root.Mkdir(tmp+d, 0o755); err != nil {
			return "", bundle.Error(err)
		}
	}
	inside, err := s.root.OpenRoot(tmp)
	if err != nil {
		return "", bundle.Error(err)
	}
	defer inside.Close()
	if err := bundle.WriteMasks(inside); err != nil {
		return "", err
	}
	if err := s.root.Rename(tmp, name); err != nil {
		return "", bundle.Error(err)
	}
	return dir, nil
}

// completeBase adds what an earlier version has not made.
func (s *Store) completeBase(name string) error {
	inside, err := s.root.OpenRoot(name)
	if err != nil {
		return bundle.Error(err)
	}
	defer inside.Close()
	if _, err := inside.Lstat(spec.EmptyFile); err == nil {
		return nil
	}
	return bundle.WriteEmpty(inside)
}
