package policy

import (
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/spec/document"
)

// maxDistance is the maximum number of edits between a typing error and the key that was meant.
const maxDistance = 2

// unknown adds a problem for an unknown key, with the key that was probably meant.
func (s *scope) unknown(at document.Position, name string) {
	if meant := nearest(name, keyNames(infos(s.keys), "", name)); meant != "" && meant != name {
		s.wrong(at, name, "unknown key, did you mean %q?", meant)
		return
	}
	s.wrong(at, name, "unknown key")
}

// Keys are the names of all keys of a policy: those of its tables with dots, and a table with names that the user chooses as one.
func Keys() []string { return keyNames(infos(policyKeys()), "", "") }

// keyNames lists every key in full. Names that the user chooses are taken from the key that it looks for.
func keyNames(keys []info, prefix, like string) []string {
	var names []string
	for _, k := range keys {
		full := under(prefix, k.name)
		names = append(names, full)
		inner := full
		if k.named {
			rest, ok := strings.CutPrefix(like, full+".")
			own, _, nested := strings.Cut(rest, ".")
			if !ok || !nested {
				continue
			}
			inner += "." + own
		}
		if k.inner != nil {
			names = append(names, keyNames(k.inner(), inner, like)...)
		}
	}
	return names
}

// nearest returns the name with the fewest edits, or else the first equal name of another table; "" if there is none. In a short name
// at most half of the characters may differ, because every name is near to "ab".
func nearest(name string, names []string) string {
	last := name[strings.LastIndex(name, ".")+1:]
	best, least := "", maxDistance+1
	for _, n := range names {
		if d := distance(name, n); d < least && 2*d <= len(last) {
			best, least = n, d
		}
	}
	if best != "" {
		return best
	}
	i := slices.IndexFunc(names, func(n string) bool { return n == last || strings.HasSuffix(n, "."+last) })
	if i < 0 {
		return ""
	}
	return names[i]
}

// Nearest returns the name that was probably meant: the one with the fewest edits, at most two, and in a short name at most half of
// the characters; "" if no name is near.
func Nearest(name string, names []string) string {
	best, least := "", maxDistance+1
	for _, n := range names {
		if d := distance(name, n); d < least && 2*d <= len(name) {
			best, least = n, d
		}
	}
	return best
}

// distance is the number of characters to insert, delete, replace or swap with their neighbour (optimal string
// alignment) that turns one string into the other. Strings whose lengths are too far apart are not compared.
func distance(a, b string) int {
	if d := len(a) - len(b); d > maxDistance || -d > maxDistance {
		return maxDistance + 1
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
