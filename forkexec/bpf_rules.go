package forkexec

import (
	"fmt"
	"math"
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
	var conds []bpfCond
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
		if slices.ContainsFunc(conds, func(d bpfCond) bool { return d.index == c.index }) {
			return nil, fmt.Errorf("argument %d is compared twice in one rule", arg.Index)
		}
		conds = append(conds, c)
	}
	return conds, nil
}

// contradiction finds two rules of one call that have different actions and can hold at the same time.
func contradiction(rules []bpfRule) (first, second int, found bool) {
	for i := range rules {
		for j := range i {
			if rules[i].ret != rules[j].ret && overlap(rules[i].conds, rules[j].conds) {
				return j, i, true
			}
		}
	}
	return 0, 0, false
}

// overlap says whether there are arguments for which all conditions of two rules hold.
func overlap(a, b []bpfCond) bool {
	for _, c := range a {
		for _, d := range b {
			if c.index == d.index && !c.meets(d) {
				return false
			}
		}
	}
	return !slices.ContainsFunc(slices.Concat(a, b), func(c bpfCond) bool { return !c.meets(c) })
}

// meets says whether a value exists for which both conditions hold.
func (c bpfCond) meets(d bpfCond) bool {
	if c.op == specs.OpMaskedEqual && d.op == specs.OpMaskedEqual {
		return (c.value^d.value)&c.mask&d.mask == 0
	}
	if c.op == specs.OpMaskedEqual {
		c, d = d, c
	}
	for _, s := range c.spans() {
		if d.op == specs.OpMaskedEqual {
			if least, ok := d.least(s.from); ok && least <= s.to {
				return true
			}
			continue
		}
		for _, t := range d.spans() {
			if max(s.from, t.from) <= min(s.to, t.to) {
				return true
			}
		}
	}
	return false
}

// bpfSpan is a range of numbers, both ends included. It is empty if to is less than from.
type bpfSpan struct{ from, to uint64 }

// spans returns the values for which a comparison other than SCMP_CMP_MASKED_EQ holds.
func (c bpfCond) spans() []bpfSpan {
	below, above := bpfSpan{1, 0}, bpfSpan{1, 0}
	if c.value > 0 {
		below = bpfSpan{0, c.value - 1}
	}
	if c.value < math.MaxUint64 {
		above = bpfSpan{c.value + 1, math.MaxUint64}
	}
	switch c.op {
	case specs.OpEqualTo:
		return []bpfSpan{{c.value, c.value}}
	case specs.OpNotEqual:
		return []bpfSpan{below, above}
	case specs.OpLessThan:
		return []bpfSpan{below}
	case specs.OpLessEqual:
		return []bpfSpan{{0, c.value}}
	case specs.OpGreaterThan:
		return []bpfSpan{above}
	default: // SCMP_CMP_GE: readConds lets no other through
		return []bpfSpan{{c.value, math.MaxUint64}}
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

// bpfBlocks returns what the rules decide as ranges of the low half of one argument, if that is all that they look at:
// each one a SCMP_CMP_MASKED_EQ whose mask is a prefix of the low 32 bits. Rules without contradiction only.
func bpfBlocks(rules []bpfRule) (index uint, out []bpfBlock, ok bool) {
	for _, r := range rules {
		if len(r.conds) != 1 || r.conds[0].op != specs.OpMaskedEqual || r.conds[0].index != rules[0].conds[0].index {
			return 0, nil, false
		}
		free := ^uint32(r.conds[0].mask)
		if r.conds[0].mask > math.MaxUint32 || free&(free+1) != 0 {
			return 0, nil, false
		}
		from := uint32(r.conds[0].value)
		out = append(out, bpfBlock{from, from | free, r.ret})
	}
	slices.SortFunc(out, func(a, b bpfBlock) int {
		if a.from != b.from {
			return int(int64(a.from) - int64(b.from))
		}
		return int(int64(b.to) - int64(a.to))
	})
	return rules[0].conds[0].index, out, true
}

// bpfBlock is a range of the low half of an argument, both ends included, and what the filter returns for it.
type bpfBlock struct{ from, to, ret uint32 }
