package container

import (
	"fmt"
	"io"
	"os"

	"github.com/sandboxrun/sandboxrun/container/fault"
)

// streamFile keeps the beginning of a stream in a file. Nothing that goes wrong with it reaches the program or holds it
// up: what is not in the file is counted, and told of in the end.
type streamFile struct {
	f       *os.File
	name    string // for the user
	size    int64  // what is in it
	cap     int64  // the most that may be
	missing int64  // what came and is not in it
	failed  error
}

// filePair are the files of one exec's two streams.
type filePair [2]*streamFile

// streamNames are what the two are called, wherever they are kept.
func streamNames() [2]string { return [2]string{"stdout", "stderr"} }

func (s *streamFile) keep(p []byte) {
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
func (s *streamFile) close() string {
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
type streamFiles []*streamFile

func (s streamFiles) Write(p []byte) (int, error) {
	for _, f := range s {
		f.keep(p)
	}
	return len(p), nil
}

// copier writes a stream to a place beside where it goes.
type copier struct{ to, beside io.Writer }

func (c *copier) Write(p []byte) (int, error) {
	_, _ = c.beside.Write(p) // see streamFiles
	return c.to.Write(p)
}

// keepIn adds files that the streams are written to.
func (r *Running) keepIn(pairs []filePair) {
	for _, p := range pairs {
		r.stdout.files, r.stderr.files = append(r.stdout.files, p[0]), append(r.stderr.files, p[1])
	}
}

// closeFiles ends those files, and says what is wrong with them.
func (r *Running) closeFiles() []string {
	var warnings []string
	for _, k := range []*keeper{r.stdout, r.stderr} {
		for _, f := range k.files {
			if w := f.close(); w != "" {
				warnings = append(warnings, w)
			}
		}
	}
	return warnings
}
