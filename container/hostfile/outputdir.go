package hostfile

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/stream"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/fault"
)

// outputDirMax is how many bytes of each stream an output directory keeps.
const outputDirMax = 1 << 30

// Dir is such a directory, with the two files that were made in it.
type Dir struct {
	name   string
	what   string // it is called to the user
	parent *os.File
	Dir    *os.File
	made   string // what it is called in parent, if we have made it
	Files  stream.Files
}

// OpenOutput makes the files that the whole streams go to. The program must not be able to reach them, nor to lead us
// astray: no link is followed that stands in a directory which it sees.
func OpenOutput(name string, sees *trust.Shown) (*Dir, error) {
	o, err := OpenDir(name, "output directory", sees)
	if err != nil {
		return nil, err
	}
	for i, base := range stream.Names() {
		f, err := newFileAt(o.Dir, base)
		switch {
		case errors.Is(err, unix.EEXIST):
			err = fault.New(fault.OutputExists, "remove it, or choose another directory", "make %q: it exists already", name+"/"+base)
		case err != nil:
			err = fault.New(fault.OutputDirUnusable, "", "make %q: %w", name+"/"+base, err)
		}
		if err != nil {
			o.Discard()
			return nil, err
		}
		o.Files[i] = stream.NewFile(f, name+"/"+base, outputDirMax)
	}
	return o, nil
}

func newFileAt(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// OpenDir opens a directory, and makes it if only that is missing. what it is called to the user.
func OpenDir(name, what string, sees *trust.Shown) (*Dir, error) {
	o := &Dir{name: name, what: what}
	if err := o.open(sees); err != nil {
		o.Discard()
		return nil, err
	}
	return o, nil
}

// open walks to the directory.
func (o *Dir) open(sees *trust.Shown) error {
	w := trust.Walk{Rest: strings.Split(o.name, "/"), Follow: func(dir *os.File) error {
		return sees.Refuse(dir, "a link on the way to "+o.what, o.name)
	}}
	missing, err := w.Go()
	o.Dir = w.At
	var e *fault.Error
	switch {
	case errors.As(err, &e):
		return err
	case errors.Is(err, unix.ENOENT):
		return fault.New(fault.OutputDirUnusable, "only the last directory of the path is made", "open %s %q: %w", o.what, o.name, err)
	case err != nil:
		return fault.New(fault.OutputDirUnusable, "", "open %s %q: %w", o.what, o.name, err)
	}
	if err := sees.Refuse(o.Dir, o.what, o.name); err != nil {
		return err
	}
	if missing == "" {
		return nil
	}
	o.parent, o.Dir = o.Dir, nil
	switch err := unix.Mkdirat(int(o.parent.Fd()), missing, 0o700); err {
	case nil:
		o.made = missing
	case unix.EEXIST:
	default:
		return fault.New(fault.OutputDirUnusable, "", "make %s %q: %w", o.what, o.name, err)
	}
	fd, err := unix.Openat(int(o.parent.Fd()), missing, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fault.New(fault.OutputDirUnusable, "", "open %s %q: %w", o.what, o.name, err)
	}
	o.Dir = os.NewFile(uintptr(fd), o.name)
	return nil
}

// Close releases what is not needed while the program runs.
func (o *Dir) Close() {
	for _, f := range []*os.File{o.parent, o.Dir} {
		if f != nil {
			f.Close()
		}
	}
}

// Discard removes what was made: the program has not run.
func (o *Dir) Discard() {
	for i, base := range stream.Names() {
		if o.Files[i] != nil {
			o.Files[i].Discard()
			_ = unix.Unlinkat(int(o.Dir.Fd()), base, 0)
		}
	}
	if o.made != "" {
		_ = unix.Unlinkat(int(o.parent.Fd()), o.made, unix.AT_REMOVEDIR)
	}
	o.Close()
}
