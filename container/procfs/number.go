package procfs

import (
	"strconv"
	"strings"
)

// NumberAfter finds the number that follows a word at the start of a line; without a word the first line's.
func NumberAfter(text, word string) (int64, bool) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, word)
		rest = strings.TrimSuffix(strings.TrimSpace(rest), " kB")
		if n, err := strconv.ParseInt(rest, 10, 64); ok && err == nil {
			return n, true
		}
	}
	return 0, false
}
