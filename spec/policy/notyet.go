package policy

import (
	"reflect"
	"strings"
)

// unsupported is a key that the loader reads and checks, and that has no effect yet.
type unsupported struct {
	key      string
	harmless any // the value, as Canonical writes it, that asks for nothing; nil is a key that Canonical leaves out
}

// notYet lists the keys that are refused, because nothing enforces them. To support a key, delete its line here.
func notYet() []unsupported {
	return []unsupported{}
}

// refuse adds a problem for each unsupported key that the policy, as Canonical writes it, uses.
func (l *loader) refuse(keys []unsupported, asked map[string]any) {
	for _, u := range keys {
		if !reflect.DeepEqual(lookup(asked, u.key), u.harmless) {
			l.failHint(l.places[u.key], u.key, "remove the key; it comes with a later version", "not supported yet")
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
