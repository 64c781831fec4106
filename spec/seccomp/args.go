package seccomp

import (
	"math"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// outcome is the action of a rule, and its errno if it has one.
type outcome specs.LinuxSyscall

func allowIt() outcome { return outcome{Action: specs.ActAllow} }

func errno(e unix.Errno) outcome {
	n := uint(e)
	return outcome{Action: specs.ActErrno, ErrnoRet: &n}
}

func (o outcome) rule(names []string, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
	return specs.LinuxSyscall{Names: names, Action: o.Action, ErrnoRet: o.ErrnoRet, Args: args}
}

func masked(index uint, mask, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: mask, ValueTwo: value, Op: specs.OpMaskedEqual}
}

func is(index uint, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: value, Op: specs.OpEqualTo}
}

// more is not SCMP_CMP_NE, with which libseccomp 2.5 gets rules of several arguments wrong.
func more(index uint, value uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: value, Op: specs.OpGreaterThan}
}

// sortLow32 gives the calls the outcome listed when the argument's low 32 bits are one of values, and other when they are
// not. The kernel takes these arguments as 32-bit numbers and ignores the high half, so a comparison of all 64 bits
// would be passed by setting one of them.
func sortLow32(names []string, index uint, values []uint32, listed, other outcome) []specs.LinuxSyscall {
	each, rest := sortBits(index, 32, values...)
	rules := make([]specs.LinuxSyscall, 0, len(each)+len(rest))
	for _, a := range each {
		rules = append(rules, listed.rule(names, a))
	}
	for _, a := range rest {
		rules = append(rules, other.rule(names, a))
	}
	return rules
}

// sortBits divides the values of an argument's low bits: each is one of values, in their order, and rest is all other values.
// OCI has no "else", and its rules for one call may not overlap; so the rest is made of blocks of numbers, each with a
// common prefix of bits, that lie between the values.
func sortBits(index uint, width int, values ...uint32) (each, rest []specs.LinuxSeccompArg) {
	all := uint64(1)<<width - 1
	for _, v := range values {
		each = append(each, masked(index, all, uint64(v)))
	}
	var block func(prefix uint32, free int, within []uint32)
	block = func(prefix uint32, free int, within []uint32) {
		switch {
		case len(within) == 0:
			rest = append(rest, masked(index, all>>free<<free, uint64(prefix)))
		case free > 0:
			middle := prefix | 1<<(free-1)
			n, _ := slices.BinarySearch(within, middle)
			block(prefix, free-1, within[:n])
			block(middle, free-1, within[n:])
		}
	}
	block(0, width, slices.Sorted(slices.Values(values)))
	return each, rest
}

// sortSmall divides all values of an argument that has a meaning only below 1<<width. above is the rest of its 64 bits, also
// values that the kernel would treat as one of values because it ignores the high half. Only a program that sets that half on
// purpose notices, and it takes a third of the rules: libseccomp needs ten instructions for each, and the kernel takes 4096.
func sortSmall(index uint, width int, values ...uint32) (each, rest []specs.LinuxSeccompArg, above specs.LinuxSeccompArg) {
	each, rest = sortBits(index, width, values...)
	for _, list := range [][]specs.LinuxSeccompArg{each, rest} {
		for i := range list {
			list[i].Value |= math.MaxUint64 << width
		}
	}
	return each, rest, more(index, 1<<width-1)
}
