// Package document reads TOML and JSON strictly into one tree of nodes that know their line and column. It imports none of ours.
package document

import (
	"bytes"
	"sort"
	"unicode/utf8"
)

// Kind is the type of a value in a policy file, in the words of messages.
type Kind string

// Kinds of nodes.
const (
	TableNode   Kind = "a table"
	ListNode    Kind = "a list"
	StringNode  Kind = "a string"
	IntegerNode Kind = "an integer"
	FloatNode   Kind = "a number with a fraction"
	BoolNode    Kind = "true or false"
	dateNode    Kind = "a date"
	nullNode    Kind = "null"
)

// Position is a place in a file: lines and columns count from 1, columns in characters.
type Position struct{ Line, Column int }

// Node is a value of a policy file. TOML and JSON become the same nodes, so all later code is the same for both.
type Node struct {
	Kind    Kind
	At      Position
	Text    string  // of a string
	Integer int64   // of an integer
	Float   float64 // of an integer or a number with a fraction
	Yes     bool    // of true or false
	Items   []*Node // of a list
	Fields  []Field // of a table, in the order of the file
}

// Field is a name and a value of a table.
type Field struct {
	Name  string
	At    Position // of the name
	Value *Node
}

// Get returns a table's field, or nil.
func (n *Node) Get(name string) *Field {
	for i := range n.Fields {
		if n.Fields[i].Name == name {
			return &n.Fields[i]
		}
	}
	return nil
}

// Fault is a syntax error of a TOML or JSON file.
type Fault struct {
	At      Position
	Key     string // may be empty
	Message string
}

// Cursor turns byte offsets into positions. Lines are found once; the column is counted on from the last offset asked
// for, because offsets mostly come in order and a file may be one long line.
type Cursor struct {
	data   []byte
	lines  []int // offset at which each line begins
	offset int
	at     Position
}

// NewCursor takes the whole file.
func NewCursor(data []byte) *Cursor {
	c := &Cursor{data: data, lines: []int{0}, at: Position{1, 1}}
	for i, b := range data {
		if b == '\n' {
			c.lines = append(c.lines, i+1)
		}
	}
	return c
}

// Position returns the place of the byte at offset; offsets outside the file are moved to its ends.
func (c *Cursor) Position(offset int) Position {
	offset = min(max(offset, 0), len(c.data))
	line := sort.SearchInts(c.lines, offset+1)
	if begin := c.lines[line-1]; line != c.at.Line || offset < c.offset {
		c.offset, c.at = begin, Position{line, 1}
	}
	c.at.Column += utf8.RuneCount(c.data[c.offset:offset])
	c.offset = offset
	return c.at
}

// InvalidUTF8 returns the offset of the first byte that is not UTF-8, or -1.
func InvalidUTF8(data []byte) int {
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

// LooksLikeJSON reports whether a file is JSON, because no TOML file begins with a brace.
func LooksLikeJSON(data []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{"))
}
