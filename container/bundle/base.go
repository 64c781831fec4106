package bundle

import (
	"os"
	"path/filepath"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Base makes the directory in a state directory, root, in which every process 1 starts, if it is not there. path is that of root, dirs what
// it needs, and take takes the lock against others who make it.
func Base(root *os.Root, path string, dirs []string, take func() (unlock func(), err error)) (string, error) {
	const name = ".base"
	dir := filepath.Join(path, name)
	if info, err := root.Lstat(name); err == nil {
		if !info.IsDir() {
			return "", fault.New(fault.StateUnusable, "remove it, or choose another directory with --root DIR", "%q is no directory: sandboxrun has not made it", dir)
		}
		if _, err := root.Lstat(filepath.Join(name, spec.EmptyFile)); err == nil {
			return dir, nil
		}
	}
	unlock, err := take()
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := root.Lstat(name); err == nil {
		return dir, completeBase(root, name)
	}
	tmp := name + ".new"
	if err := root.RemoveAll(tmp); err != nil { // somebody was killed here
		return "", Error(err)
	}
	for _, d := range append([]string{""}, dirs...) {
		if err := root.Mkdir(tmp+d, 0o755); err != nil {
			return "", Error(err)
		}
	}
	inside, err := root.OpenRoot(tmp)
	if err != nil {
		return "", Error(err)
	}
	defer inside.Close()
	if err := WriteMasks(inside); err != nil {
		return "", err
	}
	if err := root.Rename(tmp, name); err != nil {
		return "", Error(err)
	}
	return dir, nil
}

// completeBase adds what an earlier version has not made.
func completeBase(root *os.Root, name string) error {
	inside, err := root.OpenRoot(name)
	if err != nil {
		return Error(err)
	}
	defer inside.Close()
	if _, err := inside.Lstat(spec.EmptyFile); err == nil {
		return nil
	}
	return WriteEmpty(inside)
}
