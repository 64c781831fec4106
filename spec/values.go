package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// wrongKind adds a problem for a value of a wrong type.
func (s *scope) wrongKind(v *node, key, want string) {
	s.wrong(v.at, key, "want %s, got %s", want, v.kind)
}

// text reads a string that is not empty.
func (s *scope) text(v *node, key string) (string, bool) {
	switch {
	case v.kind != stringNode:
		s.wrongKind(v, key, "a string")
	case v.text == "":
		s.wrong(v.at, key, "is an empty string")
	case strings.Contains(v.text, "\x00"):
		s.wrong(v.at, key, "has a NUL character")
	default:
		return v.text, true
	}
	return "", false
}

// list returns the items of a list.
func (s *scope) list(v *node, key, want string) []*node {
	if v.kind != listNode {
		s.wrongKind(v, key, want)
		return nil
	}
	return v.items
}

// path reads a path and makes it absolute by a rule.
func (s *scope) path(v *node, key string, rule func(string) (string, error)) (string, bool) {
	text, ok := s.text(v, key)
	if !ok {
		return "", false
	}
	p, err := rule(text)
	if err != nil {
		s.wrong(v.at, key, "%v", err)
		return "", false
	}
	return p, true
}

// flagKey is true or false.
func flagKey[T any](name, doc string, at func(*T) *bool) key[T] {
	return key[T]{
		info: info{name: name, kind: "true or false", doc: doc, schema: func() map[string]any { return map[string]any{"type": "boolean"} }},
		set: func(s *scope, name string, t *T, v *node) {
			if v.kind != boolNode {
				s.wrongKind(v, name, "true or false")
				return
			}
			*at(t) = v.yes
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
		set: func(s *scope, name string, t *T, v *node) {
			if v.kind != stringNode {
				s.wrongKind(v, name, "one of "+want)
				return
			}
			if !slices.Contains(words, v.text) {
				s.wrong(v.at, name, "want one of %s, got %q", want, v.text)
				return
			}
			*at(t) = v.text
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
		set: func(s *scope, name string, t *T, v *node) {
			for _, item := range s.list(v, name, "a "+kind) {
				text, ok := s.text(item, name)
				if !ok {
					continue
				}
				text, err := parse(text)
				if err != nil {
					s.wrong(item.at, name, "%v", err)
				} else if !slices.Contains(*at(t), text) {
					*at(t) = append(*at(t), text)
					s.policy.note(name, text, s.place(item.at))
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
		set: func(s *scope, name string, t *T, v *node) {
			if v.kind != integerNode {
				s.wrongKind(v, name, "an integer")
				return
			}
			if v.integer < low || v.integer > high {
				s.wrong(v.at, name, "want %d to %d, got %d", low, high, v.integer)
				return
			}
			*at(t) = v.integer
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
		set: func(s *scope, name string, t *T, v *node) {
			if v.kind != integerNode && v.kind != floatNode {
				s.wrongKind(v, name, "a number")
				return
			}
			if !(v.float >= low && v.float <= high) { // in this form NaN is refused too
				s.wrong(v.at, name, "want %g to %g, got %g", low, high, v.float)
				return
			}
			*at(t) = v.float
		},
		get: func(t *T) any { return unlessZero(*at(t)) },
	}
}

// sizeKey is a number of bytes with a minimum.
func sizeKey[T any](name, doc string, least int64, at func(*T) *int64) key[T] {
	if least > 1 {
		doc += " At least " + sizeText(least) + "."
	}
	return key[T]{
		info: info{name: name, kind: "size", doc: doc, schema: sizeSchema},
		set: func(s *scope, name string, t *T, v *node) {
			n, err := v.integer, error(nil)
			switch v.kind {
			case integerNode:
				err = checkSize(n)
			case stringNode:
				n, err = ParseSize(v.text)
			default:
				s.wrongKind(v, name, `a size such as "512M"`)
				return
			}
			if err != nil {
				s.wrong(v.at, name, "%v", err)
				return
			}
			if n < least {
				s.failHint(s.place(v.at), name, unitHint(n), "%s is less than the least, %s", sizeText(n), sizeText(least))
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
		set: func(s *scope, name string, t *T, v *node) {
			var d time.Duration
			var err error
			switch v.kind {
			case integerNode, floatNode:
				d, err = seconds(v.float)
			case stringNode:
				d, err = ParseDuration(v.text)
			default:
				s.wrongKind(v, name, `a duration such as "1m30s", or seconds`)
				return
			}
			if err != nil {
				s.wrong(v.at, name, "%v", err)
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
		map[string]any{"type": "integer", "minimum": 1, "maximum": int64(maxSize)},
		map[string]any{"type": "string", "pattern": sizePattern},
	)
}

func durationSchema() map[string]any {
	return anyOf(
		map[string]any{"type": "number", "minimum": 0, "maximum": maxDuration.Seconds()},
		map[string]any{"type": "string", "pattern": durationPattern},
	)
}

func anyOf(schemas ...map[string]any) map[string]any { return map[string]any{"anyOf": schemas} }
