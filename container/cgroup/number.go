package cgroup

import (
	"os"

	"github.com/sandboxrun/sandboxrun/container/procfs"
)

// Number reads a number from a file of a control group: the one that follows a word at the start of a line; without a word the first line's.
func Number(path, word string) (int64, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	return procfs.NumberAfter(string(data), word)
}
