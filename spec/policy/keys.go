package policy

import (
	"regexp"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec/document"
)

// info describes a key. Messages, the schema and the reference are made from it.
type info struct {
	name     string
	kind     string                // its type, in a few words
	doc      string                // one or more sentences
	def      string                // its default, as in a policy or in words
	required bool                  // in each table of a list of tables
	schema   func() map[string]any // the JSON Schema of its value, without the description
	inner    func() []info         // the keys of its table, or of the tables in its list
	named    bool                  // its table has tables with names that the user chooses
}

// kindRecords is the kind of a list of tables.
const kindRecords = "list of tables"

// key is one key of a table that describes a T, with its reader and writer.
type key[T any] struct {
	info
	// set reads a value; name is the whole key, for messages.
	set func(s *scope, name string, t *T, v *document.Node)
	// get returns the value that Canonical writes, or nil to leave the key out.
	get func(t *T) any
}

// byDefault documents the default.
func (k key[T]) byDefault(def string) key[T] { k.def = def; return k }

// must makes a key required.
func (k key[T]) must() key[T] { k.required = true; return k }

func infos[T any](keys []key[T]) []info {
	list := make([]info, len(keys))
	for i, k := range keys {
		list[i] = k.info
	}
	return list
}

// inner makes the infos only on demand, because a run does not need them.
func inner[T any](keys []key[T]) func() []info { return func() []info { return infos(keys) } }

// readTable reads every key of a table.
func readTable[T any](s *scope, prefix string, keys []key[T], t *T, v *document.Node) {
	if v.Kind != document.TableNode {
		s.wrongKind(v, prefix, "a table")
		return
	}
fields:
	for _, f := range v.Fields {
		name := under(prefix, f.Name)
		for _, k := range keys {
			if k.name == f.Name {
				s.places[name] = s.place(f.At)
				k.set(s, name, t, f.Value)
				continue fields
			}
		}
		s.unknown(f.At, name)
	}
	for _, k := range keys {
		if k.required && prefix != "" && v.Get(k.name) == nil {
			s.wrong(v.At, under(prefix, k.name), "missing")
		}
	}
}

// encode is the inverse of readTable.
func encode[T any](keys []key[T], t *T) map[string]any {
	table := map[string]any{}
	for _, k := range keys {
		if v := k.get(t); v != nil {
			table[k.name] = v
		}
	}
	return table
}

// encodeInner is encode, with nil for an empty table.
func encodeInner[T any](keys []key[T], t *T) any {
	if table := encode(keys, t); len(table) > 0 {
		return table
	}
	return nil
}

// sectionKey is a table whose keys describe the same T.
func sectionKey[T any](name, doc string, keys []key[T]) key[T] {
	return key[T]{
		info: info{name: name, kind: "table", doc: doc, inner: inner(keys)},
		set:  func(s *scope, name string, t *T, v *document.Node) { readTable(s, name, keys, t, v) },
		get:  func(t *T) any { return encodeInner(keys, t) },
	}
}

// recordKey is an optional table that describes an R.
func recordKey[T, R any](name, doc string, keys []key[R], at func(*T) **R, from func(*R) *string) key[T] {
	return key[T]{
		info: info{name: name, kind: "table", doc: doc, inner: inner(keys)},
		set: func(s *scope, name string, t *T, v *document.Node) {
			r := at(t)
			if *r == nil {
				*r = new(R)
			}
			*from(*r) = s.from(v.At, name)
			readTable(s, name, keys, *r, v)
		},
		get: func(t *T) any {
			if *at(t) == nil {
				return nil
			}
			return encodeInner(keys, *at(t))
		},
	}
}

// recordsKey is a list of tables, each of which describes an R. Its items are appended to those of the extended policy.
func recordsKey[T, R any](name, doc string, keys []key[R], at func(*T) *[]R, from func(*R) *string) key[T] {
	return key[T]{
		info: info{name: name, kind: kindRecords, doc: doc, inner: inner(keys)},
		set: func(s *scope, name string, t *T, v *document.Node) {
			for _, item := range s.list(v, name, "a list of tables") {
				var r R
				*from(&r) = s.from(item.At, name)
				readTable(s, name, keys, &r, item)
				*at(t) = append(*at(t), r)
			}
		},
		get: func(t *T) any {
			return listOf(*at(t), func(r R) any { return encode(keys, &r) })
		},
	}
}

// viewName is the pattern of names of views, as of sandboxes.
const viewName = `^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`

// viewsKey is a table of views with names that the user chooses.
func viewsKey(name, doc string, keys []key[View]) key[Policy] {
	return key[Policy]{
		info: info{name: name, kind: "table of tables", doc: doc, inner: inner(keys), named: true},
		set: func(s *scope, name string, p *Policy, v *document.Node) {
			if v.Kind != document.TableNode {
				s.wrongKind(v, name, "a table")
				return
			}
			valid := regexp.MustCompile(viewName)
			for _, f := range v.Fields {
				full := under(name, f.Name)
				if !valid.MatchString(f.Name) {
					s.wrong(f.At, full, "check name %q: want letters, digits, \"_\", \".\" and \"-\", at most 128", f.Name)
					continue
				}
				view := p.Views[f.Name]
				readTable(s, full, keys, &view, f.Value)
				if p.Views == nil {
					p.Views = map[string]View{}
				}
				p.Views[f.Name] = view
			}
		},
		get: func(p *Policy) any {
			if len(p.Views) == 0 {
				return nil
			}
			views := map[string]any{}
			for name, view := range p.Views {
				views[name] = encode(keys, &view)
			}
			return views
		},
	}
}

// grantsKey is a list of host paths.
func grantsKey[T any](name, doc string, at func(*T) *[]rootfs.Grant) key[T] {
	return key[T]{
		info: info{name: name, kind: "list of paths", doc: doc, schema: listOfPaths},
		set: func(s *scope, name string, t *T, v *document.Node) {
			for _, item := range s.list(v, name, "a list of paths") {
				if p, ok := s.path(item, name, s.hostPath); ok {
					*at(t) = append(*at(t), rootfs.Grant{Path: p, From: s.from(item.At, name)})
				}
			}
		},
		get: func(t *T) any {
			return listOf(*at(t), func(g rootfs.Grant) any { return g.Path })
		},
	}
}

// pathKey is one path, made absolute by the given rule.
func pathKey[T any](name, doc string, inside bool, at func(*T) *string) key[T] {
	kind := "path"
	if inside {
		kind = "absolute path"
	}
	return key[T]{
		info: info{name: name, kind: kind, doc: doc, schema: pathSchema},
		set: func(s *scope, name string, t *T, v *document.Node) {
			rule := s.hostPath
			if inside {
				rule = s.insidePath
			}
			if p, ok := s.path(v, name, rule); ok {
				*at(t) = p
			}
		},
		get: func(t *T) any { return unlessZero(*at(t)) },
	}
}

// listOf writes a list, or nil for an empty one.
func listOf[R any](items []R, write func(R) any) any {
	if len(items) == 0 {
		return nil
	}
	list := make([]any, len(items))
	for i, item := range items {
		list[i] = write(item)
	}
	return list
}

func unlessZero[V comparable](v V) any {
	var zero V
	if v == zero {
		return nil
	}
	return v
}

func pathSchema() map[string]any { return map[string]any{"type": "string", "minLength": 1} }

func listOfPaths() map[string]any { return listSchema(pathSchema()) }

func listSchema(item map[string]any) map[string]any {
	return map[string]any{"type": "array", "items": item}
}

// under is the full name of a key of a table, in TOML's form.
func under(table, name string) string {
	if table == "" {
		return document.JoinKey(name)
	}
	return table + "." + document.JoinKey(name)
}
