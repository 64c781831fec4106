package container

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/stream"
	"github.com/sandboxrun/sandboxrun/container/trust"
)

// OutputDirMax is how many bytes of each stream Request.OutputDir keeps.
const OutputDirMax = 1 << 30

const codeOutputExists = "output_exists"

// outputDir is the directory of Request.OutputDir, with the two files that were made in it.
type outputDir struct {
	name   string
	what   string // it is called to the user
	parent *os.File
	dir    *os.File
	made   string // what it is called in parent, if we have made it
	files  stream.Files
}

// openOutput makes the files that the whole streams go to. The program must not be able to reach them, nor to lead us
// astray: no link is followed that stands in a directory which it sees.
func (sb *Sandbox) openOutput(name string) (*outputDir, error) {
	sees, err := sb.shows()
	if err != nil {
		return nil, fmt.Errorf("keep output: %w", err)
	}
	o := &outputDir{name: name, what: "output directory"}
	if err := o.open(sees); err != nil {
		o.discard()
		return nil, err
	}
	for i, base := range stream.Names() {
		f, err := newFileAt(o.dir, base)
		switch {
		case errors.Is(err, unix.EEXIST):
			err = fail(codeOutputExists, "remove it, or choose another directory", "make %q: it exists already", name+"/"+base)
		case err != nil:
			err = fail(trust.CodeOutputDir, "", "make %q: %w", name+"/"+base, err)
		}
		if err != nil {
			o.discard()
			return nil, err
		}
		o.files[i] = stream.NewFile(f, name+"/"+base, OutputDirMax)
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

// open walks to the directory, and makes it if only that is missing.
func (o *outputDir) open(sees *trust.Shown) error {
	w := trust.Walk{Rest: strings.Split(o.name, "/"), Follow: func(dir *os.File) error {
		return sees.Refuse(dir, "a link on the way to "+o.what, o.name)
	}}
	missing, err := w.Go()
	o.dir = w.At
	var e *Error
	switch {
	case errors.As(err, &e):
		return err
	case errors.Is(err, unix.ENOENT):
		return fail(trust.CodeOutputDir, "only the last directory of the path is made", "open %s %q: %w", o.what, o.name, err)
	case err != nil:
		return fail(trust.CodeOutputDir, "", "open %s %q: %w", o.what, o.name, err)
	}
	if err := sees.Refuse(o.dir, o.what, o.name); err != nil {
		return err
	}
	if missing == "" {
		return nil
	}
	o.parent, o.dir = o.dir, nil
	switch err := unix.Mkdirat(int(o.parent.Fd()), missing, 0o700); err {
	case nil:
		o.made = missing
	case unix.EEXIST:
	default:
		return fail(trust.CodeOutputDir, "", "make %s %q: %w", o.what, o.name, err)
	}
	fd, err := unix.Openat(int(o.parent.Fd()), missing, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(trust.CodeOutputDir, "", "open %s %q: %w", o.what, o.name, err)
	}
	o.dir = os.NewFile(uintptr(fd), o.name)
	return nil
}

// close releases what is not needed while the program runs.
func (o *outputDir) close() {
	for _, f := range []*os.File{o.parent, o.dir} {
		if f != nil {
			f.Close()
		}
	}
}

// discard removes what was made: the program has not run.
func (o *outputDir) discard() {
	for i, base := range stream.Names() {
		if o.files[i] != nil {
			o.files[i].Discard()
			_ = unix.Unlinkat(int(o.dir.Fd()), base, 0)
		}
	}
	if o.made != "" {
		_ = unix.Unlinkat(int(o.parent.Fd()), o.made, unix.AT_REMOVEDIR)
	}
	o.close()
}

// startKeeping starts a program whose whole streams go to files too.
func (sb *Sandbox) startKeeping(req Request) (*Running, error) {
	out, err := sb.openOutput(req.OutputDir)
	if err != nil {
		return nil, err
	}
	req.files = append(req.files, out.files)
	r, err := sb.begin(req)
	if err != nil {
		out.discard()
		return nil, err
	}
	out.close()
	return r, nil
}
