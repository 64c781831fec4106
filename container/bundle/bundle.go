// Package bundle writes a plan as a bundle for OCI runtimes, and what our own sandboxes share with such: the files that masks are binds of.
// It imports of ours fault, rootfs and spec.
package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Write fills the directory dir, which must be empty, with a bundle that any OCI runtime starts: config.json, the
// sandbox's own root with its mount points, the masks and the generated files. oci is the plan's configuration, with the program.
func Write(dir *os.Root, plan *spec.Plan, oci *specs.Spec) error {
	for _, d := range []string{spec.RootDir, "masks", spec.GeneratedDir} {
		if err := dir.Mkdir(d, 0o755); err != nil {
			return Error(err)
		}
	}
	if err := WriteMasks(dir); err != nil {
		return err
	}
	if err := writeEntries(dir, plan.View.Entries); err != nil {
		return err
	}
	for i, m := range plan.View.Mounts {
		if m.Kind == rootfs.MountBind && m.Source == "" {
			if err := WriteNew(dir, spec.GeneratedFile(i), m.Content, 0o444); err != nil {
				return err
			}
		}
	}
	return writeConfig(dir, oci)
}

// writeEntries makes the root, and gives its files their times: after what is made in a directory.
func writeEntries(dir *os.Root, entries []rootfs.Entry) error {
	for _, e := range entries {
		if err := WriteEntry(dir, e); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if e.Modified == 0 {
			continue
		}
		at := time.Unix(0, e.Modified)
		if err := dir.Chtimes(filepath.Join(spec.RootDir, e.Path), at, at); err != nil {
			return Error(err)
		}
	}
	return nil
}

// writeConfig writes config.json with absolute sources: runtimes take relative ones to be relative to different places.
func writeConfig(dir *os.Root, s *specs.Spec) error {
	path, err := filepath.Abs(dir.Name())
	if err != nil {
		return Error(err)
	}
	oci := *s
	oci.Mounts = slices.Clone(s.Mounts)
	for i, m := range oci.Mounts {
		if m.Type == "bind" && !filepath.IsAbs(m.Source) {
			oci.Mounts[i].Source = filepath.Join(path, m.Source)
		}
	}
	data, err := json.MarshalIndent(&oci, "", "  ")
	if err != nil {
		return Error(err)
	}
	return WriteNew(dir, "config.json", string(data)+"\n", 0o644)
}

// WriteMasks makes what masks are binds of. Nobody can open the first two: not by their mode, nor can anybody change that through
// a read-only mount. Everybody can open the others.
func WriteMasks(dir *os.Root) error {
	if err := dir.Mkdir(spec.MaskDir, 0o000); err != nil {
		return Error(err)
	}
	if err := WriteNew(dir, spec.MaskFile, "", 0o000); err != nil {
		return err
	}
	return WriteEmpty(dir)
}

// WriteEmpty makes those that everybody can open.
func WriteEmpty(dir *os.Root) error {
	if err := dir.Mkdir(spec.EmptyDir, 0o555); err != nil && !errors.Is(err, fs.ErrExist) {
		return Error(err)
	}
	return WriteNew(dir, spec.EmptyFile, "", 0o444)
}

// Error is the error of what cannot be written.
func Error(err error) error {
	return fault.New(fault.StateUnusable, fault.DiskHint, "write bundle: %w", err)
}

// WriteEntry makes one entry of the root.
func WriteEntry(dir *os.Root, e rootfs.Entry) error {
	path := filepath.Join(spec.RootDir, e.Path)
	var err error
	switch e.Kind {
	case rootfs.EntryDir:
		err = dir.Mkdir(path, 0o755)
	case rootfs.EntrySymlink:
		err = dir.Symlink(e.Content, path)
	case rootfs.EntryFile:
		return WriteNew(dir, path, e.Content, e.Mode)
	default:
		err = fmt.Errorf("entry %q: unknown kind %q", e.Path, e.Kind)
	}
	if err != nil {
		return Error(err)
	}
	return nil
}

// WriteNew makes a file. Its mode is set apart from its making: the caller's umask may be anything (opencontainers/runc#1359).
func WriteNew(dir *os.Root, path, content string, mode os.FileMode) error {
	f, err := dir.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return Error(&os.PathError{Op: "write", Path: path, Err: fault.Cause(err)})
	}
	if _, err = f.WriteString(content); err == nil {
		err = f.Chmod(mode)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return Error(&os.PathError{Op: "write", Path: path, Err: fault.Cause(err)})
	}
	return nil
}
