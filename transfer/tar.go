package transfer

import (
	"archive/tar"
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// TarSink writes what is read to one new archive of the host, which appears whole or not at all and replaces a file that has its name. No owner and
// no time is in it. A directory is the archive's top: its files have paths below ".".
type TarSink struct {
	Parent *os.File // the directory above; may be O_PATH
	Name   string   // in it

	tmp string
	f   *os.File
	w   *tar.Writer
}

func (t *TarSink) header(h *tar.Header) error {
	if t.w == nil {
		if err := replaceable(int(t.Parent.Fd()), t.Name); err != nil {
			return err
		}
		t.tmp = ".sandboxrun-" + strings.ToLower(rand.Text())
		fd, err := unix.Openat(int(t.Parent.Fd()), t.tmp, newFile, 0o600)
		if err != nil {
			return fmt.Errorf("make %q: %w", t.Name, err)
		}
		t.f = os.NewFile(uintptr(fd), t.Name)
		t.w = tar.NewWriter(t.f)
	}
	h.Format = tar.FormatPAX
	if err := t.w.WriteHeader(h); err != nil {
		return fmt.Errorf("write %q: %w", t.Name, err)
	}
	return nil
}

// Dir notes a directory.
func (t *TarSink) Dir(name string, mode fs.FileMode) error {
	return t.header(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: int64(mode.Perm())})
}

// File writes a file as long as it was when it was opened: with zeros where it has become shorter.
func (t *TarSink) File(name string, mode fs.FileMode, data io.Reader) error {
	size := data.(interface{ Size() int64 }).Size()
	if name == "." {
		name = strings.TrimSuffix(path.Base(t.Name), ".tar")
	}
	if err := t.header(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(mode.Perm()), Size: size}); err != nil {
		return err
	}
	n, err := io.Copy(t.w, io.LimitReader(data, size))
	if err == nil && n < size {
		_, err = io.CopyN(t.w, zeros{}, size-n)
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", t.Name, err)
	}
	return nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// Link notes a link.
func (t *TarSink) Link(name, target string) error {
	return t.header(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777})
}

// Close gives the archive its name, unless something has failed.
func (t *TarSink) Close(failed bool) error {
	if t.w == nil {
		return nil
	}
	err := t.w.Close()
	if err == nil {
		err = t.f.Chmod(0o644)
	}
	if cerr := t.f.Close(); err == nil {
		err = cerr
	}
	dir := int(t.Parent.Fd())
	if err == nil && !failed {
		err = unix.Renameat(dir, t.tmp, dir, t.Name)
	}
	if err != nil || failed {
		_ = unix.Unlinkat(dir, t.tmp, 0)
	}
	return err
}
