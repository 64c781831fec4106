// Package recording knows where the record of a sandbox is, for all who write to it: execs, the relay and delete. What a record is, is
// package record's. It imports of ours fault and record.
package recording

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/record"
)

// Location is the directory of a sandbox's record, and what identifies the record.
type Location struct {
	Dir     string `json:"dir"`
	Session string `json:"session"`
	UTS     uint64 `json:"uts"` // the number of a namespace that all processes of the sandbox are in
}

// Open opens the record to be written to.
func (r *Location) Open() (*record.Writer, error) {
	dir, err := os.OpenFile(r.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	defer dir.Close()
	return record.Open(dir, record.FileName, r.Session)
}

// Error is why a record cannot be made or written.
func Error(err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		hint = "make room on the disk that the record is on; nothing runs that cannot be recorded"
	case errors.Is(err, unix.EEXIST):
		hint = "there is a record already: choose another directory for each sandbox"
	}
	return fault.New(fault.RecordUnusable, hint, "%w", err)
}
