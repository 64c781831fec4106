package forkexec

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// bpfRule says what a filter returns for a call when all conditions hold.
type bpfRule struct {
	conds []bpfCond
	ret   uint32
}

// bpfCond compares one argument. If mask is all ones, op is one of OCI's comparisons with value; else it is
// SCMP_CMP_MASKED_EQ, and the bits of mask must be those of value.
type bpfCond struct {
	index uint
	op    specs.LinuxSeccompOperator
	mask  uint64
	value uint64
}

// readConds checks the conditions of a rule.
func readConds(args []specs.LinuxSeccompArg) ([]bpfCond, error) {
	if len(args) == 0 {
		return nil, nil
	}
	conds := make([]bpfCond, 0, len(args))
	for _, arg := range args {
		c := bpfCond{index: arg.Index, op: arg.Op, mask: math.MaxUint64, value: arg.Value}
		switch arg.Op {
		case specs.OpEqualTo, specs.OpNotEqual, specs.OpLessThan, specs.OpLessEqual, specs.OpGreaterThan,
			specs.OpGreaterEqual:
		case specs.OpMaskedEqual:
			c.mask, c.value = arg.Value, arg.ValueTwo
			if c.value&^c.mask != 0 {
				return nil, fmt.Errorf("value %#x has bits outside the mask %#x: it is never equal", c.value, c.mask)
			}
			if c.mask == math.MaxUint64 {
				c.op = specs.OpEqualTo
			}
		default:
			return nil, fmt.Errorf("unknown operator %q", arg.Op)
		}
		if arg.Index > 5 {
			return nil, fmt.Errorf("argument %d: a system call has six, counted from 0", arg.Index)
		}
		if (&bpfRule{conds: conds}).cond(c.index) != nil {
			return nil, fmt.Errorf("argument %d is compared twice in one rule", arg.Index)
		}
		conds = append(conds, c)
	}
	return conds, nil
}

// contradiction finds two rules of one call that have different actions and can hold at the same time.
func contradiction(rules []bpfRule) (first, second int, found bool) {
	if len(rules) < 2 {
		return 0, 0, false
	}
	var f bpfField // where the rules ask for ranges of one argument, most of these are apart
	if len(rules[0].conds) > 0 {
		f, _ = fieldOf(rules, rules[0].conds[0].index)
	}
	for i := range rules {
		for j := range i {
			if rules[i].ret != rules[j].ret && !f.apart(i, j) && overlap(rules[i].conds, rules[j].conds) {
				return j, i, true
			}
		}
	}
	return 0, 0, false
}

// overlap reports whether there are arguments for which all conditions of two rules hold.
func overlap(a, b []bpfCond) bool {
	for i := range a {
		for j := range b {
			if a[i].index == b[j].index && !a[i].meets(&b[j]) {
				return false
			}
		}
	}
	return possible(a) && possible(b)
}

// possible reports whether there are arguments for which all conditions of a rule hold.
func possible(conds []bpfCond) bool {
	for i := range conds {
		if !conds[i].meets(&conds[i]) {
			return false
		}
	}
	return true
}

// meets reports whether a value exists for which both conditions hold.
func (c *bpfCond) meets(d *bpfCond) bool {
	if c.op == specs.OpMaskedEqual && d.op == specs.OpMaskedEqual {
		return (c.value^d.value)&c.mask&d.mask == 0
	}
	if c.op == specs.OpMaskedEqual {
		c, d = d, c
	}
	spans, n := c.spans()
	for _, s := range spans[:n] {
		if d.op == specs.OpMaskedEqual {
			if least, ok := d.least(s.from); ok && least <= s.to {
				return true
			}
			continue
		}
		others, n := d.spans()
		for _, t := range others[:n] {
			if max(s.from, t.from) <= min(s.to, t.to) {
				return true
			}
		}
	}
	return false
}

// bpfSpan is a range of numbers, both ends included. It is empty if to is less than from.
type bpfSpan struct{ from, to uint64 }

// holds reports whether a number is in a range.
func (s bpfSpan) holds(v uint64) bool { return s.from <= v && v <= s.to }

// spans returns the values for which a comparison other than SCMP_CMP_MASKED_EQ holds: n ranges.
func (c *bpfCond) spans() (list [2]bpfSpan, n int) {
	below, above := bpfSpan{1, 0}, bpfSpan{1, 0}
	if c.value > 0 {
		below = bpfSpan{0, c.value - 1}
	}
	if c.value < math.MaxUint64 {
		above = bpfSpan{c.value + 1, math.MaxUint64}
	}
	switch c.op {
	case specs.OpEqualTo:
		return [2]bpfSpan{{c.value, c.value}}, 1
	case specs.OpNotEqual:
		return [2]bpfSpan{below, above}, 2
	case specs.OpLessThan:
		return [2]bpfSpan{below}, 1
	case specs.OpLessEqual:
		return [2]bpfSpan{{0, c.value}}, 1
	case specs.OpGreaterThan:
		return [2]bpfSpan{above}, 1
	default: // SCMP_CMP_GE: readConds lets no other through
		return [2]bpfSpan{{c.value, math.MaxUint64}}, 1
	}
}

// least returns the smallest number from from on for which a SCMP_CMP_MASKED_EQ holds.
func (c bpfCond) least(from uint64) (uint64, bool) {
	if from&c.mask == c.value {
		return from, true
	}
	// A greater number keeps the high bits of from, has a one where from has the first other bit, and is as small as
	// the mask lets it be below. The lower that bit, the smaller the number.
	for i := range 64 {
		bit := uint64(1) << i
		high := ^(bit<<1 - 1)
		if from&bit == 0 && (c.mask&bit == 0 || c.value&bit != 0) && (from^c.value)&c.mask&high == 0 {
			return from&high | bit | c.value&(bit-1), true
		}
	}
	return 0, false
}

// inField is what a condition asks of its argument as a range of the numbers that the bits of field make, if it is one: all
// 64 bits, or the lowest 32 or fewer.
func (c *bpfCond) inField() (span bpfSpan, field uint64, ok bool) {
	if c.op != specs.OpMaskedEqual {
		spans, n := c.spans()
		return spans[0], math.MaxUint64, n == 1
	}
	width := bits.Len64(c.mask)
	field = math.MaxUint64 >> (64 - width)
	free := field &^ c.mask
	return bpfSpan{c.value, c.value | free}, field, free&(free+1) == 0 && (width <= 32 || width == 64)
}

// bpfField is an argument of which all that some rules ask are ranges of the numbers that the bits of field make.
type bpfField struct {
	index  uint
	field  uint64
	spans  []bpfSpan // what each rule asks of it
	starts []uint64  // where the answer of the rules can change
}

// fieldOf looks at one argument that rules ask for.
func fieldOf(rules []bpfRule, index uint) (_ bpfField, ok bool) {
	f := bpfField{index: index, spans: make([]bpfSpan, len(rules)), starts: append(make([]uint64, 0, 2*len(rules)+1), 0)}
	for i := range rules {
		c := rules[i].cond(index)
		if c == nil {
			f.spans[i].to = math.MaxUint64
			continue
		}
		span, field, ok := c.inField()
		if len(f.starts) == 1 {
			f.field = field
		}
		if !ok || f.field != field {
			return bpfField{}, false
		}
		f.spans[i] = span
		f.starts = append(f.starts, span.from)
		if span.from <= span.to && span.to < field {
			f.starts = append(f.starts, span.to+1)
		}
	}
	slices.Sort(f.starts)
	f.starts = slices.Compact(f.starts)
	return f, true
}

// given is the function given for the values of the argument from one start up to the next.
func (f *bpfField) given(rules []bpfRule, start uint64) []bpfRule {
	n := 0
	for _, s := range f.spans {
		if s.holds(start) {
			n++
		}
	}
	left := make([]bpfRule, 0, n)
	for i := range rules {
		if f.spans[i].holds(start) {
			left = append(left, bpfRule{rules[i].less(f.index), rules[i].ret})
		}
	}
	return left
}

// apart reports whether no value of the argument is one for two rules.
func (f *bpfField) apart(i, j int) bool {
	return f.spans != nil && max(f.spans[i].from, f.spans[j].from) > min(f.spans[i].to, f.spans[j].to)
}

// cond is what a rule asks of an argument, or nil. It asks once at most.
func (r *bpfRule) cond(index uint) *bpfCond {
	for i := range r.conds {
		if r.conds[i].index == index {
			return &r.conds[i]
		}
	}
	return nil
}

// less are a rule's conditions on other arguments.
func (r *bpfRule) less(index uint) []bpfCond {
	c := r.cond(index)
	switch {
	case c == nil:
		return r.conds
	case len(r.conds) == 1:
		return nil
	}
	rest := make([]bpfCond, 0, len(r.conds)-1)
	for _, c := range r.conds {
		if c.index != index {
			rest = append(rest, c)
		}
	}
	return rest
}

// given returns what is left of rules where a condition is known to hold: less those rules that it excludes, and less the
// conditions, and the bits of them, that follow from it.
func given(rules []bpfRule, known bpfCond) []bpfRule {
	var left []bpfRule
	for _, r := range rules {
		if slices.ContainsFunc(r.conds, func(c bpfCond) bool { return c.index == known.index && !known.meets(&c) }) {
			continue
		}
		conds := slices.DeleteFunc(slices.Clone(r.conds), func(c bpfCond) bool { return known.implies(c) })
		for i, c := range conds {
			if c.index == known.index && c.op == specs.OpMaskedEqual && known.op == specs.OpMaskedEqual {
				conds[i].mask &^= known.mask
				conds[i].value &= conds[i].mask
			}
		}
		left = append(left, bpfRule{conds, r.ret})
	}
	return left
}

// without returns what is left where a condition is known not to hold.
func without(rules []bpfRule, known bpfCond) []bpfRule {
	if not, ok := known.negated(); ok {
		return given(rules, not)
	}
	return slices.DeleteFunc(slices.Clone(rules), func(r bpfRule) bool {
		return slices.ContainsFunc(r.conds, func(c bpfCond) bool { return c.implies(known) })
	})
}

// implies reports whether another condition holds wherever this one does. It may be false though that is so.
func (c bpfCond) implies(d bpfCond) bool {
	if c.index != d.index {
		return false
	}
	equal := func(c bpfCond) bool { return c.op == specs.OpMaskedEqual || c.op == specs.OpEqualTo }
	if equal(c) && equal(d) {
		return d.mask&^c.mask == 0 && c.value&d.mask == d.value
	}
	not, ok := d.negated()
	return ok && !c.meets(&not)
}

// negated is the condition that holds where this one does not, if that can be said as one.
func (c bpfCond) negated() (bpfCond, bool) {
	if c.op == specs.OpMaskedEqual {
		c.value ^= c.mask
		return c, bits.OnesCount64(c.mask) == 1
	}
	c.op = map[specs.LinuxSeccompOperator]specs.LinuxSeccompOperator{
		specs.OpEqualTo: specs.OpNotEqual, specs.OpNotEqual: specs.OpEqualTo,
		specs.OpLessThan: specs.OpGreaterEqual, specs.OpGreaterEqual: specs.OpLessThan,
		specs.OpGreaterThan: specs.OpLessEqual, specs.OpLessEqual: specs.OpGreaterThan,
	}[c.op]
	return c, true
}
