package spec

import (
	"reflect"
	"strings"
)

// unsupported is a key that is read and checked, and whose behaviour does not exist yet.
type unsupported struct {
	key      string
	harmless any // the value, as Canonical writes it, that asks for nothing; nil is what Canonical leaves out
}

// notYet lists what is refused because it would not be enforced. Deleting a line is all that lifting it takes here.
func notYet() []unsupported {
	return []unsupported{
		{"files.interpreters", nil},
		{"files.packages", nil},
		{"files.hide_modules", nil},
		{"processes.spawn", true},
		{"processes.execute", nil},
		{"processes.guard", nil},
		{"processes.steps", nil},
		{"views", nil},
	}
}

// refuse notes a problem for each key of a policy, written down, that asks for what does not exist yet.
func (l *loader) refuse(keys []unsupported, asked map[string]any) {
	for _, u := range keys {
		if !reflect.DeepEqual(lookup(asked, u.key), u.harmless) {
			l.failHint(l.said[u.key], u.key, "remove the key; it comes with a later version", "not supported yet")
		}
	}
}

// lookup returns the value of a dotted key, or nil.
func lookup(table map[string]any, key string) any {
	name, rest, nested := strings.Cut(key, ".")
	v := table[name]
	if !nested {
		return v
	}
	inner, _ := v.(map[string]any)
	return lookup(inner, rest)
}
