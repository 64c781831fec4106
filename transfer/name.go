// Package transfer reads what programs have made out of a sandbox, and writes it down on the host. What it reads is hostile: names,
// links, kinds and sizes may change at any moment. Every path is resolved by the kernel below a directory that is open
// (openat2, RESOLVE_BENEATH), with the rights of the program and not those of the launcher.
package transfer

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/sandboxrun/sandboxrun/fault"
)

// refused is the error of a path that cannot be transferred, as the caller has named it.
func refused(code, name, format string, args ...any) *fault.Error {
	return fault.New(code, "", "%q: %w", name, fmt.Errorf(format, args...))
}

// Clean checks a path inside and gives it without what is superfluous. It has to be relative to the working directory, and must
// not leave that; "." is the working directory itself.
func Clean(name string) (string, error) {
	switch {
	case name == "":
		return "", refused(fault.PathInvalid, name, "the path is empty")
	case !utf8.ValidString(name):
		return "", refused(fault.PathInvalid, name, "the path is not UTF-8, as results are")
	case strings.ContainsRune(name, 0):
		return "", refused(fault.PathInvalid, name, "the path holds a null byte")
	case path.IsAbs(name):
		return "", refused(fault.PathInvalid, name, "the path is absolute; it must be relative to the working directory inside")
	}
	clean := path.Clean(name)
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return "", refused(fault.PathInvalid, name, "the path leaves the working directory")
	}
	return clean, nil
}

// staysBelow reports whether a link that stands in a directory so many levels below the top leads nowhere else than below the top. Only
// leading ".." is allowed: behind a name, which may be another link, it would not mean what it says.
func staysBelow(depth int, target string) bool {
	if target == "" || path.IsAbs(target) {
		return false
	}
	named := false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; named || depth < 0 {
				return false
			}
		default:
			named = true
		}
	}
	return true
}
