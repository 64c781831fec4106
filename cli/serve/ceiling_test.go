package serve

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestEveryParameterIsDecided: a new parameter of a request is theirs, where it is about what a client has itself, or refused under a ceiling.
func TestEveryParameterIsDecided(t *testing.T) {
	refused := map[string][]string{"create": {"id", "record"}}
	for method, of := range map[string]reflect.Type{"create": reflect.TypeFor[createParams](), "exec": reflect.TypeFor[execParams]()} {
		var names []string
		for _, f := range reflect.VisibleFields(of) {
			if !f.Anonymous {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				names = append(names, name)
			}
		}
		for _, name := range names {
			if slices.Contains(theirs()[method], name) == slices.Contains(refused[method], name) {
				t.Errorf("%s: %s is neither theirs nor refused, or both", method, name)
			}
		}
		for _, name := range slices.Concat(theirs()[method], refused[method]) {
			if !slices.Contains(names, name) {
				t.Errorf("%s has no parameter %s", method, name)
			}
		}
	}
	for method := range theirs() {
		if methods()[method] == nil {
			t.Errorf("there is no method %s", method)
		}
	}
}
