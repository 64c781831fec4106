package spec

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// tomlReader makes nodes of a TOML document.
type tomlReader struct {
	parser unstable.Parser
	data   []byte
	cursor *cursor
}

// readTOML reads a TOML document. It finds keys that are set twice itself, because it can name both places; whatever
// else TOML forbids (tables opened again, numbers that do not fit, impossible dates) is left to the toml package.
func readTOML(data []byte) (*node, *fault) {
	r := &tomlReader{data: data, cursor: newCursor(data)}
	r.parser.Reset(data)
	root := &node{kind: tableNode, at: position{1, 1}}
	table := root
	for r.parser.NextExpression() {
		var f *fault
		switch e := r.parser.Expression(); e.Kind {
		case unstable.KeyValue:
			_, f = r.keyValue(table, e)
		case unstable.Table, unstable.ArrayTable:
			table, f = r.header(root, e)
		}
		if f != nil {
			return nil, f
		}
	}
	if f := r.check(); f != nil {
		return nil, f
	}
	return root, nil
}

// check asks the toml package whether the document is valid.
func (r *tomlReader) check() *fault {
	var ignored map[string]any
	err := toml.Unmarshal(r.data, &ignored)
	if err == nil {
		err = r.parser.Error()
	}
	if err == nil {
		return nil
	}
	f := &fault{at: position{1, 1}, message: strings.TrimPrefix(err.Error(), "toml: ")}
	if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := decode.Position() // the column in bytes
		if line >= 1 && line <= len(r.cursor.lines) {
			f.at = r.cursor.position(r.cursor.lines[line-1] + column - 1)
		}
		f.key = joinKey(decode.Key()...)
	}
	return f
}

// header opens the table that [a.b] or [[a.b]] names.
func (r *tomlReader) header(root *node, e *unstable.Node) (*node, *fault) {
	table := root
	it := e.Key()
	for it.Next() {
		k := it.Node()
		at := r.at(k)
		last := it.IsLast() && e.Kind == unstable.ArrayTable
		next, f := open(table, string(k.Data), at, last)
		if f != nil {
			return nil, f
		}
		table = next
	}
	return table, nil
}

// open returns the table under a name, made where it is missing. With appended, it is a new item of a list of tables.
func open(table *node, name string, at position, appended bool) (*node, *fault) {
	f := table.get(name)
	if f == nil {
		kind := tableNode
		if appended {
			kind = listNode
		}
		table.fields = append(table.fields, field{name, at, &node{kind: kind, at: at}})
		f = &table.fields[len(table.fields)-1]
	}
	switch v := f.value; {
	case appended && v.kind == listNode:
		v.items = append(v.items, &node{kind: tableNode, at: at})
		return v.items[len(v.items)-1], nil
	case !appended && v.kind == tableNode:
		return v, nil
	case !appended && v.kind == listNode && len(v.items) > 0 && v.items[len(v.items)-1].kind == tableNode:
		return v.items[len(v.items)-1], nil
	}
	return nil, setTwice(at, name, f)
}

func setTwice(at position, name string, first *field) *fault {
	return &fault{at, joinKey(name), fmt.Sprintf("set twice, first at line %d", first.at.line)}
}

// keyValue adds "a.b = value" to a table and returns the offset at which it ends.
func (r *tomlReader) keyValue(table *node, e *unstable.Node) (int, *fault) {
	it := e.Key()
	for it.Next() {
		k := it.Node()
		name, at := string(k.Data), r.at(k)
		if !it.IsLast() {
			next, f := open(table, name, at, false)
			if f != nil {
				return 0, f
			}
			table = next
			continue
		}
		if first := table.get(name); first != nil {
			return 0, setTwice(at, name, first)
		}
		start := r.skip(int(k.Raw.Offset+k.Raw.Length), " \t=")
		v, end, f := r.value(e.Value(), start)
		table.fields = append(table.fields, field{name, at, v})
		return end, f
	}
	return 0, nil
}

// value makes a node of the value that begins at start, and returns the offset at which it ends. Both are tracked by
// hand because the parser does not report the offsets of lists.
func (r *tomlReader) value(e *unstable.Node, start int) (*node, int, *fault) {
	n := &node{at: r.cursor.position(start)}
	switch e.Kind {
	case unstable.Array:
		return r.list(n, e, start+1)
	case unstable.InlineTable:
		n.kind = tableNode
		end := start + 1
		it := e.Children()
		for it.Next() {
			var f *fault
			if end, f = r.keyValue(n, it.Node()); f != nil {
				return n, end, f
			}
		}
		return n, r.skipFiller(end) + 1, nil
	}
	r.scalar(n, e)
	return n, int(e.Raw.Offset + e.Raw.Length), nil
}

func (r *tomlReader) list(n *node, e *unstable.Node, end int) (*node, int, *fault) {
	n.kind = listNode
	it := e.Children()
	for it.Next() {
		item, after, f := r.value(it.Node(), r.skipFiller(end))
		if f != nil {
			return n, after, f
		}
		n.items = append(n.items, item)
		end = after
	}
	return n, r.skipFiller(end) + 1, nil
}

// scalar fills in a value that holds no other. Numbers that do not fit are found by check.
func (r *tomlReader) scalar(n *node, e *unstable.Node) {
	raw := string(e.Data)
	switch e.Kind {
	case unstable.String:
		n.kind, n.text = stringNode, raw
	case unstable.Bool:
		n.kind, n.yes = boolNode, raw == "true"
	case unstable.Integer:
		n.kind = integerNode
		n.integer, _ = strconv.ParseInt(raw, 0, 64)
		n.float = float64(n.integer)
	case unstable.Float:
		n.kind = floatNode
		var err error
		if n.float, err = strconv.ParseFloat(strings.ReplaceAll(raw, "_", ""), 64); err != nil {
			n.float = math.Inf(1)
		}
	default:
		n.kind = dateNode
	}
}

func (r *tomlReader) at(n *unstable.Node) position { return r.cursor.position(int(n.Raw.Offset)) }

// skip returns the offset of the first byte from offset on that is not in set.
func (r *tomlReader) skip(offset int, set string) int {
	return len(r.data) - len(bytes.TrimLeft(r.data[offset:], set))
}

// skipFiller skips blanks, commas and comments between the items of a list.
func (r *tomlReader) skipFiller(offset int) int {
	for {
		offset = min(r.skip(min(offset, len(r.data)), " \t\r\n,"), len(r.data))
		if !bytes.HasPrefix(r.data[offset:], []byte("#")) {
			return offset
		}
		line := bytes.IndexByte(r.data[offset:], '\n')
		if line < 0 {
			return len(r.data)
		}
		offset += line
	}
}
