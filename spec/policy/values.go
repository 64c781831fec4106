package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/spec/document"
	"github.com/sandboxrun/sandboxrun/units"
)

// wrongKind adds a problem for a value of a wrong type.
func (s *scope) wrongKind(v *document.Node, key, want string) {
	s.wrong(v.At, key, "want %s, got %s", want, v.Kind)
}

// text reads a string that is not empty.
func (s *scope) text(v *document.Node, key string) (string, bool) {
	switch {
	case v.Kind != document.StringNode:
		s.wrongKind(v, key, "a string")
	case v.Text == "":
		s.wrong(v.At, key, "is an empty string")
	case strings.Contains(v.Text, "\x00"):
		s.wrong(v.At, key, "has a NUL character")
	default:
		return v.Text, true
	}
	return "", false
}

// list returns the items of a list.
func (s *scope) list(v *document.Node, key, want string) []*document.Node {
	if v.Kind != document.ListNode {
		s.wrongKind(v, key, want)
		return nil
	}
	return v.Items
}

// path reads a path and makes it absolute by a rule.
func (s *scope) path(v *document.Node, key string, rule func(string) (string, error)) (string, bool) {
	text, ok := s.text(v, key)
	if !ok {
		return "", false
	}
	p, err := rule(text)
	if err != nil {
		s.wrong(v.At, key, "%v", err)
		return "", false
	}
	return p, true
}

// flagKey is true or false.
func flagKey[T any](name, doc string, at func(*T) *bool) key[T] {
	return key[T]{
		info: info{name: name, kind: "true or false", doc: doc, schema: func() map[string]any { return map[string]any{"type": "boolean"} }},
		set: func(s *scope, name string, t *T, v *document.Node) {
			if v.Kind != document.BoolNode {
				s.wrongKind(v, name, "true or false")
				return
			}
			*at(t) = v.Yes
		},
		get: func(t *T) any { return *at(t) },
	}
}

// wordKey is a string from a fixed list.
func wordKey[T any](name, doc string, words []string, at func(*T) *string) key[T] {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", w)
	}
	want := strings.Join(quoted, ", ")
	return key[T]{
		info: info{name: name, kind: want, doc: doc, schema: func() map[string]any { return map[string]any{"enum": words} }},
		set: func(s *scope, name string, t *T, v *document.Node) {
			if v.Kind != document.StringNode {
				s.wrongKind(v, name, "one of "+want)
				return
			}
			if !slices.Contains(words, v.Text) {
				s.wrong(v.At, name, "want one of %s, got %q", want, v.Text)
				return
			}
			*at(t) = v.Text
		},
		get: func(t *T) any { return unlessZero(*at(t)) },
	}
}

// textsKey is a list of strings. parse checks, and may rewrite, each of them. Duplicates are dropped.
func textsKey[T any](
	name, kind, doc string, item func() map[string]any, parse func(string) (string, error), at func(*T) *[]string,
) key[T] {
	return key[T]{
		info: info{name: name, kind: kind, doc: doc, schema: func() map[string]any { return listSchema(item()) }},
		set: func(s *scope, name string, t *T, v *document.Node) {
			for _, item := range s.list(v, name, "a "+kind) {
				text, ok := s.text(item, name)
				if !ok {
					continue
				}
				text, err := parse(text)
				if err != nil {
					s.wrong(item.At, name, "%v", err)
				} else if !slices.Contains(*at(t), text) {
					*at(t) = append(*at(t), text)
					s.policy.note(name, text, s.place(item.At))
				}
			}
		},
		get: func(t *T) any { return listOf(*at(t), func(s string) any { return s }) },
	}
}

// countKey is a whole number within bounds.
func countKey[T any](name, doc string, low, high int64, at func(*T) *int64) key[T] {
	return key[T]{
		info: info{
			name: name, kind: fmt.Sprintf("integer, %d to %d", low, high), doc: doc,
			schema: func() map[string]any {
				return map[string]any{"type": "integer", "minimum": low, "maximum": high}
			},
		},
		set: func(s *scope, name string, t *T, v *document.Node) {
			if v.Kind != document.IntegerNode {
				s.wrongKind(v, name, "an integer")
				return
			}
			if v.Integer < low || v.Integer > high {
				s.wrong(v.At, name, "want %d to %d, got %d", low, high, v.Integer)
				return
			}
			*at(t) = v.Integer
		},
		get: func(t *T) any { return unlessZero(*at(t)) },
	}
}

// fractionKey is a number within bounds.
func fractionKey[T any](name, doc string, low, high float64, at func(*T) *float64) key[T] {
	return key[T]{
		info: info{
			name: name, kind: fmt.Sprintf("number, %g to %g", low, high), doc: doc,
			schema: func() map[string]any {
				return map[string]any{"type": "number", "minimum": low, "maximum": high}
			},
		},
		set: func(s *scope, name string, t *T, v *document.Node) {
			if v.Kind != document.IntegerNode && v.Kind != document.FloatNode {
				s.wrongKind(v, name, "a number")
				return
			}
			if !(v.Float >= low && v.Float <= high) { // in this form NaN is refused too
				s.wrong(v.At, name, "want %g to %g, got %g", low, high, v.Float)
				return
			}
			*at(t) = v.Float
		},
		get: func(t *T) any { return unlessZero(*at(t)) },
	}
}

// Minimum sizes, in bytes. A smaller size is an error, because no program would work and the unit was probably forgotten.
const (
	minMemory = 256 << 10
	minSpace  = 4 << 10 // a page of a file system
)

// unitHint is the hint for a size that is too small.
func unitHint(n int64) string {
	if n%1024 == 0 {
		return ""
	}
	return fmt.Sprintf("a size without a unit is bytes: write \"%dM\" for megabytes", n)
}

// CheckMemory refuses a memory limit below the minimum of limits.memory.
func CheckMemory(n int64) error {
	if n < minMemory {
		return fault.New(fault.PolicyInvalid, unitHint(n), "%s is less than the least, %s", units.Size(n), units.Size(minMemory))
	}
	return nil
}

// sizeKey is a number of bytes with a minimum.
func sizeKey[T any](name, doc string, least int64, at func(*T) *int64) key[T] {
	if least > 1 {
		doc += " At least " + units.Size(least) + "."
	}
	return key[T]{
		info: info{name: name, kind: "size", doc: doc, schema: sizeSchema},
		set: func(s *scope, name string, t *T, v *document.Node) {
			n, err := v.Integer, error(nil)
			switch v.Kind {
			case document.IntegerNode:
				err = units.CheckSize(n)
			case document.StringNode:
				n, err = units.ParseSize(v.Text)
			default:
				s.wrongKind(v, name, `a size such as "512M"`)
				return
			}
			if err != nil {
				s.wrong(v.At, name, "%v", err)
				return
			}
			if n < least {
				s.failHint(s.place(v.At), name, unitHint(n), "%s is less than the least, %s", units.Size(n), units.Size(least))
				return
			}
			*at(t) = n
		},
		get: func(t *T) any { return unlessZero(*at(t)) },
	}
}

// durationKey is a duration.
func durationKey[T any](name, doc string, at func(*T) *time.Duration) key[T] {
	return key[T]{
		info: info{name: name, kind: "duration", doc: doc, schema: durationSchema},
		set: func(s *scope, name string, t *T, v *document.Node) {
			var d time.Duration
			var err error
			switch v.Kind {
			case document.IntegerNode, document.FloatNode:
				d, err = units.Seconds(v.Float)
			case document.StringNode:
				d, err = units.ParseDuration(v.Text)
			default:
				s.wrongKind(v, name, `a duration such as "1m30s", or seconds`)
				return
			}
			if err != nil {
				s.wrong(v.At, name, "%v", err)
				return
			}
			*at(t) = d
		},
		get: func(t *T) any {
			if *at(t) == 0 {
				return nil
			}
			return at(t).String()
		},
	}
}

func sizeSchema() map[string]any {
	return anyOf(
		map[string]any{"type": "integer", "minimum": 1, "maximum": int64(units.MaxSize)},
		map[string]any{"type": "string", "pattern": units.SizePattern},
	)
}

func durationSchema() map[string]any {
	return anyOf(
		map[string]any{"type": "number", "minimum": 0, "maximum": units.MaxDuration.Seconds()},
		map[string]any{"type": "string", "pattern": units.DurationPattern},
	)
}

func anyOf(schemas ...map[string]any) map[string]any { return map[string]any{"anyOf": schemas} }
