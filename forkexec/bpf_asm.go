package forkexec

import (
	"math"
	"math/bits"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// What a filter reads: struct seccomp_data of linux/seccomp.h. Each argument has 64 bits, low half first on both of our
// architectures, and a filter loads 32.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
)

// The instructions of a filter.
const (
	opLoad    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	opAnd     = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	opJump    = unix.BPF_JMP | unix.BPF_JA
	opEqual   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	opMore    = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
	opAtLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	opAny     = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	opReturn  = unix.BPF_RET | unix.BPF_K
)

// bpfAsm writes a filter from its end to its beginning, because jumps go forward only: so what an instruction jumps to
// has always been written already.
type bpfAsm struct {
	reversed []unix.SockFilter
	returns  map[uint32]bpfLabel
	shared   []sharedRules
}

// bpfLabel is an instruction that has been written, counted from the end of the filter.
type bpfLabel int

// sharedRules is the offset of the code for some rules; where equal ones are left it is shared.
type sharedRules struct {
	rules []bpfRule
	at    bpfLabel
}

// bpfRange says where to go for numbers from start up to the next range's start.
type bpfRange struct {
	start uint32
	to    bpfLabel
}

// assembleFilter writes the filter: the architecture, then the call's number, then its arguments if it has to be.
func assembleFilter(calls *bpfCalls) []unix.SockFilter {
	a := &bpfAsm{returns: map[uint32]bpfLabel{}}
	kill := a.ret(unix.SECCOMP_RET_KILL_PROCESS)
	other := a.ret(calls.other)

	ranges := []bpfRange{{0, other}}
	add := func(start uint32, to bpfLabel) {
		switch last := &ranges[len(ranges)-1]; {
		case last.start == start:
			last.to = to
			if n := len(ranges); n > 1 && ranges[n-2].to == to {
				ranges = ranges[:n-1]
			}
		case last.to != to:
			ranges = append(ranges, bpfRange{start, to})
		}
	}
	for number, rules := range calls.rules {
		if rules == nil {
			continue
		}
		add(uint32(number), a.call(rules, calls.other))
		add(uint32(number)+1, other)
	}
	if bpfArch == "amd64" {
		add(x32Bit, a.ret(unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)))
	}
	search := a.load(dataNumber, a.search(ranges))
	a.load(dataArch, a.test(opEqual, bpfAuditArch, search, kill))
	slices.Reverse(a.reversed)
	return a.reversed
}

func (a *bpfAsm) emit(f unix.SockFilter) bpfLabel {
	a.reversed = append(a.reversed, f)
	return bpfLabel(len(a.reversed) - 1)
}

// ret is a return of value.
func (a *bpfAsm) ret(value uint32) bpfLabel {
	if at, ok := a.returns[value]; ok {
		return at
	}
	a.returns[value] = a.emit(unix.SockFilter{Code: opReturn, K: value})
	return a.returns[value]
}

// load reads a word of the call and goes on at next.
func (a *bpfAsm) load(offset uint32, next bpfLabel) bpfLabel {
	if distance := a.distance(next); distance > 0 {
		a.hop(next)
	}
	return a.emit(unix.SockFilter{Code: opLoad, K: offset})
}

// test compares the word that was read and goes on at yes or at no.
func (a *bpfAsm) test(op uint16, k uint32, yes, no bpfLabel) bpfLabel {
	no = a.near(no, 1) // one more than it has to, because yes may put one instruction in between
	yes = a.near(yes, 0)
	return a.emit(unix.SockFilter{Code: op, K: k, Jt: uint8(a.distance(yes)), Jf: uint8(a.distance(no))})
}

// distance is how many instructions the next one to be written has to jump over to reach a label.
func (a *bpfAsm) distance(to bpfLabel) int { return len(a.reversed) - 1 - int(to) }

// near returns a label that a comparison can reach, also with room more instructions in between: it jumps over 255 at
// most.
func (a *bpfAsm) near(to bpfLabel, room int) bpfLabel {
	if a.distance(to)+room <= math.MaxUint8 {
		return to
	}
	return a.hop(to)
}

// hop writes an instruction that does the same as the one at to: a copy of a return, or a jump.
func (a *bpfAsm) hop(to bpfLabel) bpfLabel {
	if f := a.reversed[to]; f.Code == opReturn {
		return a.emit(f)
	}
	return a.emit(unix.SockFilter{Code: opJump, K: uint32(a.distance(to))})
}

// search goes to the range that the word that was read is in.
func (a *bpfAsm) search(ranges []bpfRange) bpfLabel {
	if len(ranges) == 1 {
		return ranges[0].to
	}
	if len(ranges) == 3 && ranges[0].to == ranges[2].to && ranges[2].start == ranges[1].start+1 {
		return a.test(opEqual, ranges[1].start, ranges[1].to, ranges[0].to)
	}
	middle := len(ranges) / 2
	high := a.search(ranges[middle:])
	low := a.search(ranges[:middle])
	return a.test(opAtLeast, ranges[middle].start, high, low)
}

// call decides by rules that do not contradict each other.
func (a *bpfAsm) call(rules []bpfRule, other uint32) bpfLabel {
	same := func(r, s bpfRule) bool { return r.ret == s.ret && slices.Equal(r.conds, s.conds) }
	for _, s := range a.shared {
		if slices.EqualFunc(s.rules, rules, same) {
			return s.at
		}
	}
	at := a.decide(rules, other)
	a.shared = append(a.shared, sharedRules{rules, at})
	return at
}

// decide looks at the first condition of the first rule. Where all that the rules ask of its argument are ranges of the same
// bits, it is a search for the range that the argument is in; else one test. Either way fewer conditions are left.
func (a *bpfAsm) decide(rules []bpfRule, other uint32) bpfLabel {
	if len(rules) == 0 {
		return a.ret(other)
	}
	first := slices.IndexFunc(rules, func(r bpfRule) bool { return len(r.conds) == 0 })
	if first >= 0 {
		return a.ret(rules[first].ret)
	}
	c := rules[0].conds[0]
	if f, ok := fieldOf(rules, c.index); ok {
		return a.blocks(&f, rules, other)
	}
	no := a.call(without(rules, c), other)
	yes := a.call(given(rules, c), other)
	return a.cond(c, yes, no)
}

// blocks decides by the bits of field of one argument. Between two starts the rules ask the same of them.
func (a *bpfAsm) blocks(f *bpfField, rules []bpfRule, other uint32) bpfLabel {
	at, starts, field := dataArgs+8*uint32(f.index), f.starts, f.field
	var highs, lows []bpfRange // of the high half, and of the low half within one value of that
	var last bpfLabel
	for i, start := range starts {
		high := uint32(start >> 32)
		if len(lows) == 0 && uint32(start) > 0 {
			lows = []bpfRange{{0, last}}
		}
		last = a.call(f.given(rules, start), other)
		lows = append(lows, bpfRange{uint32(start), last})
		if i+1 < len(starts) && uint32(starts[i+1]>>32) == high {
			continue
		}
		highs = append(highs, bpfRange{high, a.half(at, uint32(field), lows)})
		if high < math.MaxUint32 && (i+1 == len(starts) || uint32(starts[i+1]>>32) > high+1) {
			highs = append(highs, bpfRange{high + 1, last})
		}
		lows = nil
	}
	if field <= math.MaxUint32 {
		return highs[0].to
	}
	return a.half(at+4, math.MaxUint32, highs)
}

// half goes to the range that the bits of field of half an argument are in.
func (a *bpfAsm) half(offset, field uint32, ranges []bpfRange) bpfLabel {
	ranges = slices.CompactFunc(ranges, func(r, s bpfRange) bool { return r.to == s.to })
	if len(ranges) == 1 {
		return ranges[0].to
	}
	to := a.search(ranges)
	if field == math.MaxUint32 {
		return a.load(offset, to)
	}
	if a.distance(to) > 0 {
		a.hop(to)
	}
	a.emit(unix.SockFilter{Code: opAnd, K: field})
	return a.emit(unix.SockFilter{Code: opLoad, K: offset})
}

// cond tests one condition. Numbers of 64 bits are compared by their high halves first.
func (a *bpfAsm) cond(c bpfCond, yes, no bpfLabel) bpfLabel {
	low, high := uint32(c.value), uint32(c.value>>32)
	atLow, atHigh := dataArgs+8*uint32(c.index), dataArgs+8*uint32(c.index)+4
	ordered := func(op uint16, yes, no bpfLabel) bpfLabel {
		rest := a.load(atLow, a.test(op, low, yes, no))
		return a.load(atHigh, a.test(opMore, high, yes, a.test(opEqual, high, rest, no)))
	}
	switch c.op {
	case specs.OpGreaterThan:
		return ordered(opMore, yes, no)
	case specs.OpLessEqual:
		return ordered(opMore, no, yes)
	case specs.OpGreaterEqual:
		return ordered(opAtLeast, yes, no)
	case specs.OpLessThan:
		return ordered(opAtLeast, no, yes)
	case specs.OpNotEqual:
		yes, no = no, yes
	}
	rest := a.masked(atLow, uint32(c.mask), low, yes, no)
	return a.masked(atHigh, uint32(c.mask>>32), high, rest, no)
}

// masked tests the bits of mask in one half of an argument.
func (a *bpfAsm) masked(offset, mask, value uint32, yes, no bpfLabel) bpfLabel {
	switch {
	case mask == 0:
		return yes
	case mask == math.MaxUint32:
		return a.load(offset, a.test(opEqual, value, yes, no))
	case value == 0:
		return a.load(offset, a.test(opAny, mask, no, yes))
	case bits.OnesCount32(mask) == 1:
		return a.load(offset, a.test(opAny, mask, yes, no))
	}
	a.test(opEqual, value, yes, no)
	a.emit(unix.SockFilter{Code: opAnd, K: mask})
	return a.emit(unix.SockFilter{Code: opLoad, K: offset})
}
