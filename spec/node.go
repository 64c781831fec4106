package spec

import (
	"bytes"
	"sort"
	"unicode/utf8"
)

// nodeKind is the type of a value in a policy file, in the words of messages.
type nodeKind string

const (
	tableNode   nodeKind = "a table"
	listNode    nodeKind = "a list"
	stringNode  nodeKind = "a string"
	integerNode nodeKind = "an integer"
	floatNode   nodeKind = "a number with a fraction"
	boolNode    nodeKind = "true or false"
	dateNode    nodeKind = "a date"
	nullNode    nodeKind = "null"
)

// position is a place in a file: lines and columns count from 1, columns in characters.
type position struct{ line, column int }

// node is a value of a policy file. TOML and JSON become the same nodes, so all later code is the same for both.
type node struct {
	kind    nodeKind
	at      position
	text    string  // of a string
	integer int64   // of an integer
	float   float64 // of an integer or a number with a fraction
	yes     bool    // of true or false
	items   []*node // of a list
	fields  []field // of a table, in the order of the file
}

type field struct {
	name  string
	at    position // of the name
	value *node
}

// get returns a table's field, or nil.
func (n *node) get(name string) *field {
	for i := range n.fields {
		if n.fields[i].name == name {
			return &n.fields[i]
		}
	}
	return nil
}

// fault is a syntax error of a TOML or JSON file.
type fault struct {
	at      position
	key     string // may be empty
	message string
}

// cursor turns byte offsets into positions. Lines are found once; the column is counted on from the last offset asked
// for, because offsets mostly come in order and a file may be one long line.
type cursor struct {
	data   []byte
	lines  []int // offset at which each line begins
	offset int
	at     position
}

func newCursor(data []byte) *cursor {
	c := &cursor{data: data, lines: []int{0}, at: position{1, 1}}
	for i, b := range data {
		if b == '\n' {
			c.lines = append(c.lines, i+1)
		}
	}
	return c
}

// position returns the place of the byte at offset; offsets outside the file are moved to its ends.
func (c *cursor) position(offset int) position {
	offset = min(max(offset, 0), len(c.data))
	line := sort.SearchInts(c.lines, offset+1)
	if begin := c.lines[line-1]; line != c.at.line || offset < c.offset {
		c.offset, c.at = begin, position{line, 1}
	}
	c.at.column += utf8.RuneCount(c.data[c.offset:offset])
	c.offset = offset
	return c.at
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// looksLikeJSON reports whether a file is JSON, because no TOML file begins with a brace.
func looksLikeJSON(data []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{"))
}
