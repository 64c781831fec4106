// Package recording knows where the record of a sandbox is, for all who write to it: execs, the relay and delete. What a record is, is
// package record's. It imports of ours record.
package recording

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/record"
)

// Place is where a sandbox's record is.
type Place struct {
	Dir     string `json:"dir"`
	Session string `json:"session"`
	UTS     uint64 `json:"uts"` // the number of a namespace that all processes of the sandbox are in
}

// Open opens the record to be written to.
func (r *Place) Open() (*record.Writer, error) {
	dir, err := os.OpenFile(r.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	defer dir.Close()
	return record.Open(dir, record.FileName, r.Session)
}
