package document

import (
	"fmt"
	"strings"
	"testing"
)

func TestCursor(t *testing.T) {
	data := []byte("ab\néx日\r\n\nlast")
	c := NewCursor(data)
	for _, w := range []struct{ offset, line, column int }{
		{0, 1, 1},
		{2, 1, 3},
		{3, 2, 1},
		{5, 2, 2},
		{6, 2, 3},
		{9, 2, 4},
		{11, 3, 1},
		{12, 4, 1},
		{16, 4, 5},
		{99, 4, 5},
		{6, 2, 3},
		{5, 2, 2},
		{0, 1, 1},
		{-1, 1, 1},
		{13, 4, 2},
	} {
		if got := c.Position(w.offset); got != (Position{w.line, w.column}) {
			t.Errorf("position(%d) = %v, want %v", w.offset, got, w)
		}
	}
}

// writeNode shows a node with its places, to compare what the two readers make.
func writeNode(b *strings.Builder, n *Node, depth int) {
	fmt.Fprintf(b, "%s %d:%d", n.Kind, n.At.Line, n.At.Column)
	switch n.Kind {
	case StringNode:
		fmt.Fprintf(b, " %q", n.Text)
	case IntegerNode:
		fmt.Fprintf(b, " %d", n.Integer)
	case FloatNode:
		fmt.Fprintf(b, " %g", n.Float)
	case BoolNode:
		fmt.Fprintf(b, " %t", n.Yes)
	}
	b.WriteString("\n")
	for _, item := range n.Items {
		b.WriteString(strings.Repeat(" ", depth+1) + "- ")
		writeNode(b, item, depth+1)
	}
	for _, f := range n.Fields {
		fmt.Fprintf(b, "%s%s@%d:%d = ", strings.Repeat(" ", depth+1), f.Name, f.At.Line, f.At.Column)
		writeNode(b, f.Value, depth+1)
	}
}

func TestReaders(t *testing.T) {
	for _, c := range []struct {
		read       func([]byte) (*Node, *Fault)
		data, want string
	}{
		{ReadTOML, `a = [ # x, [
  1, [ "b" ], # y
  { c = 'd' , e.f = 0x1_0 }, [] ] # z
b . "c d" = """
x"""
[t.u]
v = 1_0.5
[[t.l]]
w = true
[t.l.m]
[[t.l]]
`, `a table 1:1
 a@1:1 = a list 1:5
  - an integer 2:3 1
  - a list 2:6
   - a string 2:8 "b"
  - a table 3:3
   c@3:5 = a string 3:9 "d"
   e@3:15 = a table 3:15
    f@3:17 = an integer 3:21 16
  - a list 3:30
 b@4:1 = a table 4:1
  c d@4:5 = a string 4:13 "x"
 t@6:2 = a table 6:2
  u@6:4 = a table 6:4
   v@7:1 = a number with a fraction 7:5 10.5
  l@8:5 = a list 8:5
   - a table 8:5
    w@9:1 = true or false 9:5 true
    m@10:6 = a table 10:6
   - a table 11:5
`},
		{ReadJSON, "\n{\"a\" : [1 ,[], \n{\"b\": -2.5e1}, false],\t\"c\\n\":null, \"d\":{}}\n", `a table 2:1
 a@2:2 = a list 2:8
  - an integer 2:9 1
  - a list 2:12
  - a table 3:1
   b@3:2 = a number with a fraction 3:7 -25
  - true or false 3:16 false
 c
@3:24 = null 3:30
 d@3:36 = a table 3:40
`},
	} {
		n, f := c.read([]byte(c.data))
		if f != nil {
			t.Fatal(f)
		}
		var b strings.Builder
		writeNode(&b, n, 0)
		if b.String() != c.want {
			t.Errorf("%s\n got\n%s\nwant\n%s", c.data, b.String(), c.want)
		}
	}
}
