package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
)

// maxDepth bounds how deep JSON values may nest; a policy needs 6 levels.
const maxDepth = 100

// jsonReader makes nodes of a JSON document.
type jsonReader struct {
	decoder *json.Decoder
	data    []byte
	cursor  *Cursor
}

// ReadJSON reads a JSON document, which must be one object. Unlike encoding/json it refuses keys that are set twice and
// escapes that are no character (they would silently become another path).
func ReadJSON(data []byte) (*Node, *Fault) {
	r := &jsonReader{json.NewDecoder(bytes.NewReader(data)), data, NewCursor(data)}
	r.decoder.UseNumber()
	root, f := r.value(0)
	if f != nil {
		return nil, f
	}
	if root.Kind != TableNode {
		return nil, &Fault{At: root.At, Message: "want a JSON object"}
	}
	if _, at, f := r.token(); f == nil || f.Message != errEnd {
		return nil, &Fault{At: at, Message: "more text after the end of the JSON object"}
	}
	return root, nil
}

const errEnd = "the file ends too early"

// token returns the next token and its offset.
func (r *jsonReader) token() (json.Token, Position, *Fault) {
	start := int(r.decoder.InputOffset())
	start = len(r.data) - len(bytes.TrimLeft(r.data[start:], " \t\r\n,:"))
	at := r.cursor.Position(start)
	t, err := r.decoder.Token()
	if err == nil {
		if s, ok := t.(string); ok && strings.ContainsRune(s, '\uFFFD') &&
			loneSurrogate(r.data[start:r.decoder.InputOffset()]) {
			return nil, at, &Fault{At: at, Message: `a \u escape in this string is half of a surrogate pair`}
		}
		return t, at, nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, at, &Fault{At: at, Message: errEnd}
	}
	return nil, at, &Fault{At: at, Message: "read JSON: " + err.Error()}
}

func (r *jsonReader) value(depth int) (*Node, *Fault) {
	t, at, f := r.token()
	if f != nil {
		return nil, f
	}
	if depth > maxDepth {
		return nil, &Fault{At: at, Message: "values nest too deep"}
	}
	n := &Node{At: at}
	switch t := t.(type) {
	case json.Delim:
		if t == '{' {
			return n, r.table(n, depth)
		}
		return n, r.list(n, depth)
	case string:
		n.Kind, n.Text = StringNode, t
	case bool:
		n.Kind, n.Yes = BoolNode, t
	case json.Number:
		return n, number(n, t.String())
	case nil:
		n.Kind = nullNode
	}
	return n, nil
}

func (r *jsonReader) table(n *Node, depth int) *Fault {
	n.Kind = TableNode
	for r.decoder.More() {
		t, at, f := r.token()
		if f != nil {
			return f
		}
		name, ok := t.(string)
		if !ok {
			return &Fault{At: at, Message: "want a key in double quotes"}
		}
		if first := n.Get(name); first != nil {
			return setTwice(at, name, first)
		}
		v, f := r.value(depth + 1)
		if f != nil {
			return f
		}
		n.Fields = append(n.Fields, Field{name, at, v})
	}
	_, _, f := r.token() // the closing brace, or a syntax error in its place
	return f
}

func (r *jsonReader) list(n *Node, depth int) *Fault {
	n.Kind = ListNode
	for r.decoder.More() {
		v, f := r.value(depth + 1)
		if f != nil {
			return f
		}
		n.Items = append(n.Items, v)
	}
	_, _, f := r.token()
	return f
}

func number(n *Node, s string) *Fault {
	var err error
	if strings.ContainsAny(s, ".eE") {
		n.Kind = FloatNode
		if n.Float, err = strconv.ParseFloat(s, 64); err != nil {
			n.Float = math.Inf(1) // every range refuses it
		}
		return nil
	}
	n.Kind = IntegerNode
	if n.Integer, err = strconv.ParseInt(s, 10, 64); err != nil {
		return &Fault{At: n.At, Message: "the number does not fit in 64 bits"}
	}
	n.Float = float64(n.Integer)
	return nil
}

// loneSurrogate reports whether a JSON string, as written, has a \u escape that is half of a surrogate pair.
func loneSurrogate(raw []byte) bool {
	high := false
	for i := 0; i < len(raw); i++ {
		r := rune(-1)
		if raw[i] == '\\' && i+1 < len(raw) {
			i++
			if raw[i] == 'u' && i+4 < len(raw) {
				u, _ := strconv.ParseUint(string(raw[i+1:i+5]), 16, 16)
				r, i = rune(u), i+4
			}
		}
		low := r >= 0xDC00 && utf16.IsSurrogate(r)
		if high != low {
			return true
		}
		high = utf16.IsSurrogate(r) && !low
	}
	return high
}
