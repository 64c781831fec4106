package pathname

import (
	"strconv"
	"strings"
)

// Printable writes a path so that no name can steer a terminal or end a line.
func Printable(p string) string {
	if strings.ContainsFunc(p, func(r rune) bool { return !strconv.IsPrint(r) || r == '\ufffd' }) {
		return strconv.QuoteToASCII(p)
	}
	return p
}
