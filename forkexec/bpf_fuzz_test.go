package forkexec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// randomProfile makes a profile of few calls and near values, so that rules meet.
func randomProfile(r *rand.Rand) *specs.LinuxSeccomp {
	actions := []specs.LinuxSeccompAction{
		specs.ActAllow, specs.ActErrno, specs.ActKillProcess, specs.ActTrap, specs.ActLog, specs.ActTrace,
	}
	ops := []specs.LinuxSeccompOperator{
		specs.OpEqualTo, specs.OpNotEqual, specs.OpLessThan, specs.OpLessEqual, specs.OpGreaterThan, specs.OpGreaterEqual,
		specs.OpMaskedEqual, specs.OpMaskedEqual, specs.OpMaskedEqual,
	}
	names := []string{"read", "write", "close", "ioctl", "clone", "socket", "clone3", "statx", "openat", "nonesuch"}
	value := func() uint64 {
		switch v := r.Uint64(); r.IntN(6) {
		case 0:
			return v
		case 1:
			return v & 7
		case 2:
			return v & 7 << 32
		case 3:
			return math.MaxUint64 - v&7
		case 4:
			return math.MaxUint32 << (v & 31) & math.MaxUint32 // a prefix of the low half
		default:
			return v & 0x700000007
		}
	}
	p := &specs.LinuxSeccomp{DefaultAction: actions[r.IntN(len(actions))]}
	for range r.IntN(12) {
		entry := specs.LinuxSyscall{Action: actions[r.IntN(3)]}
		for range 1 + r.IntN(3) {
			entry.Names = append(entry.Names, names[r.IntN(len(names))])
		}
		if entry.Action == specs.ActErrno {
			e := uint(r.IntN(40))
			entry.ErrnoRet = &e
		}
		for i := range uint(r.IntN(3)) {
			arg := specs.LinuxSeccompArg{Index: i*2 + uint(r.IntN(2)), Op: ops[r.IntN(len(ops))], Value: value()}
			if arg.Op == specs.OpMaskedEqual {
				arg.ValueTwo = value() & arg.Value
			}
			entry.Args = append(entry.Args, arg)
		}
		p.Syscalls = append(p.Syscalls, entry)
	}
	return p
}

// FuzzCompile makes profiles up. What compiles must decide as the profile says; and a profile may only be refused for a
// contradiction if it has one: this is tested on the values of its own conditions.
func FuzzCompile(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed, seed*7)
	}
	f.Fuzz(func(t *testing.T, a, b uint64) {
		r := rand.New(rand.NewPCG(a, b))
		p, numbers := randomProfile(r), callNumbers()
		filter, err := CompileSeccomp(p, bpfArch)
		if err != nil {
			p.Syscalls = slices.DeleteFunc(p.Syscalls, func(specs.LinuxSyscall) bool { return r.IntN(2) == 0 })
			if filter, err = CompileSeccomp(p, bpfArch); err != nil {
				return
			}
		}
		values := map[uint][]uint64{}
		for _, entry := range p.Syscalls {
			for _, arg := range entry.Args {
				for _, v := range []uint64{arg.Value, arg.ValueTwo, arg.ValueTwo | r.Uint64()&^arg.Value} {
					values[arg.Index] = append(values[arg.Index], v-1, v, v+1, v^1<<32, v^1<<63)
				}
			}
		}
		for range 300 {
			var args [6]uint64
			for i := range args {
				if vs := values[uint(i)]; len(vs) > 0 {
					args[i] = vs[r.IntN(len(vs))]
				}
			}
			number := numbers[[]string{"read", "write", "close", "ioctl", "clone", "socket", "clone3", "statx", "openat"}[r.IntN(9)]]
			if r.IntN(10) == 0 {
				number = r.Uint32()
			}
			got, err := interpret(filter, seccompData(bpfAuditArch, number, args))
			if want := oracle(p, numbers, number, args); err != nil || got != want {
				t.Fatalf("%+v: call %d %#x: %#x, %v; want %#x", p, number, args, got, err, want)
			}
		}
	})
}

// FuzzOverlap compares what overlap says of two conditions with a search for a value.
func FuzzOverlap(f *testing.F) {
	for seed := range uint64(500) {
		f.Add(seed, seed*13)
	}
	f.Fuzz(func(t *testing.T, a, b uint64) {
		r := rand.New(rand.NewPCG(a, b))
		ops := []specs.LinuxSeccompOperator{
			specs.OpEqualTo, specs.OpNotEqual, specs.OpLessThan, specs.OpLessEqual, specs.OpGreaterThan,
			specs.OpGreaterEqual, specs.OpMaskedEqual, specs.OpMaskedEqual,
		}
		// Numbers of six bits, then the top ones of 64: shifted, so that both ends of the range are tried.
		shift := []int{0, 58}[r.IntN(2)]
		arg := func() specs.LinuxSeccompArg {
			arg := specs.LinuxSeccompArg{Op: ops[r.IntN(len(ops))], Value: r.Uint64N(64) << shift}
			if arg.Op == specs.OpMaskedEqual {
				arg.Value |= ^(uint64(63) << shift) // the other bits have to be zero
				arg.ValueTwo = r.Uint64N(64) << shift & arg.Value
			}
			return arg
		}
		x, y := arg(), arg()
		c, err := readConds([]specs.LinuxSeccompArg{x})
		d, err2 := readConds([]specs.LinuxSeccompArg{y})
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		want := false
		for v := range uint64(64) {
			for _, w := range []uint64{v << shift, v<<shift + 1, v<<shift - 1, v<<shift + 2, math.MaxUint64} {
				want = want || holds(x, w) && holds(y, w)
			}
		}
		if got := overlap(c, d); got != want {
			t.Errorf("%+v and %+v: overlap %v, want %v", x, y, got, want)
		}
	})
}

func TestLeast(t *testing.T) {
	for mask := range uint64(32) {
		for value := range uint64(32) {
			if value&^mask != 0 {
				continue
			}
			c := bpfCond{op: specs.OpMaskedEqual, mask: mask | 0xffff0000, value: value}
			for from := range uint64(66) {
				want, found := uint64(0), false
				for v := from; v < 1<<16 && !found; v++ {
					want, found = v, v&c.mask == value
				}
				if !found { // then only above the mask's own bits
					continue
				}
				if got, ok := c.least(from); !ok || got != want {
					t.Fatalf("mask %#x value %#x from %d: %d %v, want %d", mask, value, from, got, ok, want)
				}
			}
		}
	}
	if v, ok := (bpfCond{mask: 1 << 63, value: 0}).least(1 << 63); ok {
		t.Errorf("found %#x", v)
	}
}
