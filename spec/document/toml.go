package document

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
	cursor *Cursor
}

// ReadTOML reads a TOML document. It finds keys that are set twice itself, because it can name both places; whatever
// else TOML forbids (tables opened again, numbers that do not fit, impossible dates) is left to the toml package.
func ReadTOML(data []byte) (*Node, *Fault) {
	r := &tomlReader{data: data, cursor: NewCursor(data)}
	r.parser.Reset(data)
	root := &Node{Kind: TableNode, At: Position{1, 1}}
	table := root
	for r.parser.NextExpression() {
		var f *Fault
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
func (r *tomlReader) check() *Fault {
	var ignored map[string]any
	err := toml.Unmarshal(r.data, &ignored)
	if err == nil {
		err = r.parser.Error()
	}
	if err == nil {
		return nil
	}
	f := &Fault{At: Position{1, 1}, Message: strings.TrimPrefix(err.Error(), "toml: ")}
	if decode, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := decode.Position() // the column in bytes
		if line >= 1 && line <= len(r.cursor.lines) {
			f.At = r.cursor.Position(r.cursor.lines[line-1] + column - 1)
		}
		f.Key = JoinKey(decode.Key()...)
	}
	return f
}

// header opens the table that [a.b] or [[a.b]] names.
func (r *tomlReader) header(root *Node, e *unstable.Node) (*Node, *Fault) {
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
func open(table *Node, name string, at Position, appended bool) (*Node, *Fault) {
	f := table.Get(name)
	if f == nil {
		kind := TableNode
		if appended {
			kind = ListNode
		}
		table.Fields = append(table.Fields, Field{name, at, &Node{Kind: kind, At: at}})
		f = &table.Fields[len(table.Fields)-1]
	}
	switch v := f.Value; {
	case appended && v.Kind == ListNode:
		v.Items = append(v.Items, &Node{Kind: TableNode, At: at})
		return v.Items[len(v.Items)-1], nil
	case !appended && v.Kind == TableNode:
		return v, nil
	case !appended && v.Kind == ListNode && len(v.Items) > 0 && v.Items[len(v.Items)-1].Kind == TableNode:
		return v.Items[len(v.Items)-1], nil
	}
	return nil, setTwice(at, name, f)
}

func setTwice(at Position, name string, first *Field) *Fault {
	return &Fault{at, JoinKey(name), fmt.Sprintf("set twice, first at line %d", first.At.Line)}
}

// keyValue adds "a.b = value" to a table and returns the offset at which it ends.
func (r *tomlReader) keyValue(table *Node, e *unstable.Node) (int, *Fault) {
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
		if first := table.Get(name); first != nil {
			return 0, setTwice(at, name, first)
		}
		start := r.skip(int(k.Raw.Offset+k.Raw.Length), " \t=")
		v, end, f := r.value(e.Value(), start)
		table.Fields = append(table.Fields, Field{name, at, v})
		return end, f
	}
	return 0, nil
}

// value makes a node of the value that begins at start, and returns the offset at which it ends. Both are tracked by
// hand because the parser does not report the offsets of lists.
func (r *tomlReader) value(e *unstable.Node, start int) (*Node, int, *Fault) {
	n := &Node{At: r.cursor.Position(start)}
	switch e.Kind {
	case unstable.Array:
		return r.list(n, e, start+1)
	case unstable.InlineTable:
		n.Kind = TableNode
		end := start + 1
		it := e.Children()
		for it.Next() {
			var f *Fault
			if end, f = r.keyValue(n, it.Node()); f != nil {
				return n, end, f
			}
		}
		return n, r.skipFiller(end) + 1, nil
	}
	r.scalar(n, e)
	return n, int(e.Raw.Offset + e.Raw.Length), nil
}

func (r *tomlReader) list(n *Node, e *unstable.Node, end int) (*Node, int, *Fault) {
	n.Kind = ListNode
	it := e.Children()
	for it.Next() {
		item, after, f := r.value(it.Node(), r.skipFiller(end))
		if f != nil {
			return n, after, f
		}
		n.Items = append(n.Items, item)
		end = after
	}
	return n, r.skipFiller(end) + 1, nil
}

// scalar fills in a value that holds no other. Numbers that do not fit are found by check.
func (r *tomlReader) scalar(n *Node, e *unstable.Node) {
	raw := string(e.Data)
	switch e.Kind {
	case unstable.String:
		n.Kind, n.Text = StringNode, raw
	case unstable.Bool:
		n.Kind, n.Yes = BoolNode, raw == "true"
	case unstable.Integer:
		n.Kind = IntegerNode
		n.Integer, _ = strconv.ParseInt(raw, 0, 64)
		n.Float = float64(n.Integer)
	case unstable.Float:
		n.Kind = FloatNode
		var err error
		if n.Float, err = strconv.ParseFloat(strings.ReplaceAll(raw, "_", ""), 64); err != nil {
			n.Float = math.Inf(1)
		}
	default:
		n.Kind = dateNode
	}
}

func (r *tomlReader) at(n *unstable.Node) Position { return r.cursor.Position(int(n.Raw.Offset)) }

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

// JoinKey joins the parts of a key with dots, and quotes those that are not bare TOML keys.
func JoinKey(names ...string) string {
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = n
		if n == "" || strings.Trim(n, NameChars+"-") != "" {
			parts[i] = fmt.Sprintf("%q", n)
		}
	}
	return strings.Join(parts, ".")
}

// NameChars are the characters of a variable's name; a bare TOML key may have "-" too.
const NameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
