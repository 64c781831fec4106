package scrub

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// attribute is an extended attribute.
type attribute struct {
	name  string
	value []byte
}

// attributes takes the values out of the extended attributes of a file that keeps its content.
func (s *Scrubber) attributes(p target, f *os.File) error {
	list, err := extended(f)
	if err != nil {
		return err
	}
	change := Changed{Path: s.Redactor.String(p.shown), Values: map[string]int{}}
	for _, a := range list {
		clean, found := counted(s.Redactor, a.value)
		if len(found) == 0 {
			continue
		}
		for name, n := range found {
			change.Values[name] += n
		}
		if s.DryRun {
			continue
		}
		if err := unix.Fsetxattr(int(f.Fd()), a.name, clean, unix.XATTR_REPLACE); err != nil {
			return fmt.Errorf("its attribute %s has a value in it: %w", a.name, err)
		}
	}
	if len(change.Values) > 0 {
		s.changed(change)
	}
	return nil
}

// copyAttributes gives a new file the attributes of the old one, without values, access lists and capabilities among them.
func (s *Scrubber) copyAttributes(to, from *os.File) error {
	list, err := extended(from)
	if err != nil {
		return err
	}
	has, err := extended(to)
	if err != nil {
		return err
	}
	for _, a := range list {
		clean, _ := counted(s.Redactor, a.value)
		same := false
		for _, h := range has {
			same = same || h.name == a.name && bytes.Equal(h.value, clean)
		}
		if same {
			continue
		}
		if err := unix.Fsetxattr(int(to.Fd()), a.name, clean, 0); err != nil {
			return fmt.Errorf("keep its attribute %s: %w", a.name, err)
		}
	}
	return nil
}

// extended lists the attributes that the caller can see.
func extended(f *os.File) ([]attribute, error) {
	names, err := sized(func(buf []byte) (int, error) { return unix.Flistxattr(int(f.Fd()), buf) })
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read its attributes: %w", err)
	}
	var list []attribute
	for name := range strings.SplitSeq(string(names), "\x00") {
		if name == "" {
			continue
		}
		value, err := sized(func(buf []byte) (int, error) { return unix.Fgetxattr(int(f.Fd()), name, buf) })
		if err != nil {
			return nil, fmt.Errorf("read its attribute %s: %w", name, err)
		}
		list = append(list, attribute{name, value})
	}
	return list, nil
}

// sized calls twice: for the size, and for the content.
func sized(read func([]byte) (int, error)) ([]byte, error) {
	n, err := read(nil)
	if err != nil || n == 0 {
		return nil, err
	}
	buf := make([]byte, n)
	if n, err = read(buf); err != nil {
		return nil, err
	}
	return buf[:n], nil
}
