package stream

import (
	"fmt"
	"io"
	"os"

	"github.com/sandboxrun/sandboxrun/fault"
)

// File keeps the beginning of a stream in a file. Nothing that goes wrong with it reaches the program or holds it
// up: bytes that are not in the file are counted, for a warning.
type File struct {
	f       *os.File
	name    string // for the user
	size    int64  // what is in it
	cap     int64  // the most that may be
	missing int64  // what came and is not in it
	failed  error
}

// NewFile keeps a stream in f, up to most bytes. name is what messages call the file.
func NewFile(f *os.File, name string, most int64) *File {
	return &File{f: f, name: name, cap: most}
}

// Discard closes a file that nothing has been written to.
func (s *File) Discard() { s.f.Close() }

// Files are the files of one exec's two streams.
type Files [2]*File

// Names are what the two are called, wherever they are kept.
func Names() [2]string { return [2]string{"stdout", "stderr"} }

func (s *File) keep(p []byte) {
	take := p[:min(int64(len(p)), s.cap-s.size)]
	if s.failed != nil {
		take = nil // what follows a gap would look as if it followed what is there
	}
	n := 0
	if len(take) > 0 {
		n, s.failed = s.f.Write(take)
	}
	s.size += int64(n)
	s.missing += int64(len(p) - n)
}

// close ends the file and says what is wrong with it, or nothing.
func (s *File) close() string {
	if err := s.f.Close(); s.failed == nil {
		s.failed = err
	}
	switch {
	case s.failed != nil:
		return fmt.Sprintf("write %s: %v: the last %d bytes of the stream are not in it", s.name, fault.Cause(s.failed), s.missing)
	case s.missing > 0:
		return fmt.Sprintf("%s holds the first %d bytes of the stream; the %d after them were left out", s.name, s.size, s.missing)
	}
	return ""
}

// streamFiles are all that one stream is kept in. To write to them never fails.
type streamFiles []*File

func (s streamFiles) Write(p []byte) (int, error) {
	for _, f := range s {
		f.keep(p)
	}
	return len(p), nil
}

// copier also writes a stream to a file.
type copier struct{ to, beside io.Writer }

func (c *copier) Write(p []byte) (int, error) {
	_, _ = c.beside.Write(p) // see streamFiles
	return c.to.Write(p)
}

// closeFiles ends those files, and says what is wrong with them.
func (s *Streams) closeFiles() []string {
	var warnings []string
	for _, k := range []*Keeper{s.stdout, s.stderr} {
		for _, f := range k.files {
			if w := f.close(); w != "" {
				warnings = append(warnings, w)
			}
		}
	}
	return warnings
}
