package forkexec

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// ourProfile is the profile that package spec makes for this architecture.
func ourProfile(t testing.TB) *specs.LinuxSeccomp {
	t.Helper()
	b, err := os.ReadFile("../spec/seccomp/testdata/seccomp_" + bpfArch + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var p specs.LinuxSeccomp
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	return &p
}

// seccompData is struct seccomp_data as the kernel hands it to a filter.
func seccompData(arch, number uint32, args [6]uint64) []byte {
	b := make([]byte, 0, 64)
	b = binary.NativeEndian.AppendUint32(b, number)
	b = binary.NativeEndian.AppendUint32(b, arch)
	b = binary.NativeEndian.AppendUint64(b, 0)
	for _, a := range args {
		b = binary.NativeEndian.AppendUint64(b, a)
	}
	return b
}

// interpret runs a filter as the kernel would, with all that libseccomp and CompileSeccomp use.
func interpret(filter []unix.SockFilter, data []byte) (uint32, error) {
	var acc uint32
	jump := func(yes bool, f unix.SockFilter) int {
		if yes {
			return int(f.Jt)
		}
		return int(f.Jf)
	}
	for pc := 0; pc < len(filter); pc++ {
		switch f := filter[pc]; f.Code {
		case opLoad:
			if f.K%4 != 0 || int(f.K)+4 > len(data) {
				return 0, fmt.Errorf("%d: load of %d", pc, f.K)
			}
			acc = binary.NativeEndian.Uint32(data[f.K:])
		case opAnd:
			acc &= f.K
		case opJump:
			pc += int(f.K)
		case opEqual:
			pc += jump(acc == f.K, f)
		case opMore:
			pc += jump(acc > f.K, f)
		case opAtLeast:
			pc += jump(acc >= f.K, f)
		case opAny:
			pc += jump(acc&f.K != 0, f)
		case opReturn:
			return f.K, nil
		default:
			return 0, fmt.Errorf("%d: instruction %#x", pc, f.Code)
		}
	}
	return 0, fmt.Errorf("the filter does not return")
}

// oracle decides a call as the profile says, in the slowest way. numbers has the names' numbers.
func oracle(p *specs.LinuxSeccomp, numbers map[string]uint32, number uint32, args [6]uint64) uint32 {
	if bpfArch == "amd64" && number >= x32Bit {
		return unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	}
	for _, r := range p.Syscalls {
		named := slices.ContainsFunc(r.Names, func(n string) bool { nr, ok := numbers[n]; return ok && nr == number })
		if named && !slices.ContainsFunc(r.Args, func(a specs.LinuxSeccompArg) bool { return !holds(a, args[a.Index]) }) {
			ret, _ := returnValue(r.Action, r.ErrnoRet)
			return ret
		}
	}
	ret, _ := returnValue(p.DefaultAction, p.DefaultErrnoRet)
	return ret
}

func holds(a specs.LinuxSeccompArg, v uint64) bool {
	switch a.Op {
	case specs.OpEqualTo:
		return v == a.Value
	case specs.OpNotEqual:
		return v != a.Value
	case specs.OpLessThan:
		return v < a.Value
	case specs.OpLessEqual:
		return v <= a.Value
	case specs.OpGreaterThan:
		return v > a.Value
	case specs.OpGreaterEqual:
		return v >= a.Value
	}
	return v&a.Value == a.ValueTwo
}

// interesting are values for an argument at which something may change: those that the profile compares with, their
// neighbours, and all of them with bits in the high half.
func interesting(p *specs.LinuxSeccomp, name string, index uint) []uint64 {
	values := map[uint64]bool{
		0: true, 1: true, unix.AF_VSOCK: true, unix.AF_ALG: true, 0x40000: true, 0x1000: true,
		math.MaxUint32: true, math.MaxUint64: true, unix.CLONE_NEWUSER: true,
		unix.TCGETS: true, 0xffffffff80045430: true, unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND: true,
	}
	for _, r := range p.Syscalls {
		if !slices.Contains(r.Names, name) {
			continue
		}
		for _, a := range r.Args {
			if a.Index != index {
				continue
			}
			for _, v := range []uint64{a.Value, a.ValueTwo, a.ValueTwo | ^a.Value} {
				values[v-1], values[v], values[v+1] = true, true, true
			}
		}
	}
	for _, v := range slices.Collect(maps.Keys(values)) {
		values[v|1<<32], values[v|1<<63], values[v&math.MaxUint32|0xffffffff00000000] = true, true, true
	}
	return slices.Sorted(maps.Keys(values))
}

// everyCall goes through all numbers that matter, and through all values that matter of the arguments that are compared,
// one by one and, at random, several together.
func everyCall(p *specs.LinuxSeccomp, numbers map[string]uint32, do func(number uint32, args [6]uint64)) {
	for number := range uint32(700) {
		do(number, [6]uint64{})
		do(number, [6]uint64{1, 2, 3, 4, 5, 6})
	}
	for _, number := range []uint32{9999, x32Bit - 1, math.MaxInt32} {
		do(number, [6]uint64{})
	}
	compared := map[string][6]bool{}
	for _, r := range p.Syscalls {
		for _, a := range r.Args {
			for _, n := range r.Names {
				c := compared[n]
				c[a.Index] = true
				compared[n] = c
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for name, indexes := range compared {
		number, ok := numbers[name]
		values := map[int][]uint64{}
		for i, yes := range indexes {
			if ok && yes {
				values[i] = interesting(p, name, uint(i))
			}
		}
		for range min(len(values)-1, 1) * 3000 { // several together
			var args [6]uint64
			for i, list := range values {
				args[i] = list[random.IntN(len(list))]
			}
			do(number, args)
		}
		for i, yes := range indexes {
			if !ok || !yes {
				continue
			}
			for _, v := range interesting(p, name, uint(i)) {
				do(number, func() (args [6]uint64) { args[i] = v; return }())
			}
		}
	}
}

func mustCompile(t testing.TB, p *specs.LinuxSeccomp) []unix.SockFilter {
	t.Helper()
	filter, err := CompileSeccomp(p, bpfArch)
	if err != nil {
		t.Fatal(err)
	}
	return filter
}

func TestCompileOurProfile(t *testing.T) {
	p, numbers := ourProfile(t), callNumbers()
	filter := mustCompile(t, p)
	t.Logf("%d instructions", len(filter))
	if len(filter) > 300 {
		t.Errorf("%d instructions: loading the filter gets slow", len(filter))
	}
	n := 0
	check := func(number uint32, args [6]uint64) {
		n++
		got, err := interpret(filter, seccompData(bpfAuditArch, number, args))
		if want := oracle(p, numbers, number, args); err != nil || got != want {
			t.Errorf("call %d %#x: %#x, %v; want %#x", number, args, got, err, want)
		}
	}
	everyCall(p, numbers, check)
	for _, number := range []uint32{x32Bit, x32Bit | 1, x32Bit | 512, math.MaxUint32} {
		check(number, [6]uint64{})
	}
	t.Logf("%d calls", n)
	for _, arch := range []uint32{0, unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, unix.AUDIT_ARCH_RISCV64} {
		if got, err := interpret(filter, seccompData(arch, numbers["getpid"], [6]uint64{})); err != nil ||
			got != unix.SECCOMP_RET_KILL_PROCESS {
			t.Errorf("architecture %#x: %#x, %v", arch, got, err)
		}
	}
}

// The decisions that matter most, by number and without the oracle.
func TestCompileDecides(t *testing.T) {
	filter := mustCompile(t, ourProfile(t))
	for _, c := range []struct {
		number uint32
		args   [6]uint64
		want   uint32
	}{
		{unix.SYS_READ, [6]uint64{}, unix.SECCOMP_RET_ALLOW},
		{unix.SYS_CLONE, [6]uint64{unix.CLONE_VM | unix.CLONE_THREAD}, unix.SECCOMP_RET_ALLOW},
		{unix.SYS_CLONE, [6]uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, unix.SECCOMP_RET_ERRNO | 1},
		{unix.SYS_CLONE, [6]uint64{unix.CLONE_NEWUSER | 1<<40}, unix.SECCOMP_RET_ERRNO | 1},
		{unix.SYS_CLONE3, [6]uint64{}, unix.SECCOMP_RET_ERRNO | 38},
		{unix.SYS_UNSHARE, [6]uint64{}, unix.SECCOMP_RET_ERRNO | 1},
		{unix.SYS_IOCTL, [6]uint64{0, unix.TIOCSTI}, unix.SECCOMP_RET_ERRNO | 1},
		{unix.SYS_IOCTL, [6]uint64{0, unix.TIOCSTI | 1<<32}, unix.SECCOMP_RET_ERRNO | 1},
		{unix.SYS_IOCTL, [6]uint64{unix.TIOCSTI, unix.TCGETS, unix.TIOCSTI}, unix.SECCOMP_RET_ALLOW},
		{unix.SYS_SOCKET, [6]uint64{unix.AF_UNIX}, unix.SECCOMP_RET_ALLOW},
		{unix.SYS_SOCKET, [6]uint64{unix.AF_VSOCK}, unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)},
		{9999, [6]uint64{}, unix.SECCOMP_RET_ERRNO | 38},
	} {
		if got, err := interpret(filter, seccompData(bpfAuditArch, c.number, c.args)); err != nil || got != c.want {
			t.Errorf("call %d %#x: %#x, %v; want %#x", c.number, c.args, got, err, c.want)
		}
	}
}

// seccompRule makes an entry of a profile.
func seccompRule(name string, action specs.LinuxSeccompAction, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
	return specs.LinuxSyscall{Names: []string{name}, Action: action, Args: args}
}

func seccompArg(index uint, op specs.LinuxSeccompOperator, values ...uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Op: op, Value: values[0], ValueTwo: append(values, 0)[1]}
}

func TestCompileRefuses(t *testing.T) {
	allow, refuse, masked := specs.ActAllow, specs.ActErrno, specs.OpMaskedEqual
	big := uint(70000)
	for _, c := range []struct {
		name string
		p    specs.LinuxSeccomp
		want string
	}{
		{"empty", specs.LinuxSeccomp{}, "not supported"},
		{"unknown default", specs.LinuxSeccomp{DefaultAction: "SCMP_ACT_NONE"}, "not supported"},
		{"flags", specs.LinuxSeccomp{DefaultAction: refuse, Flags: []specs.LinuxSeccompFlag{"X"}}, "flags"},
		{"listener", specs.LinuxSeccomp{DefaultAction: refuse, ListenerPath: "/x"}, "listeners"},
		{"architecture", specs.LinuxSeccomp{DefaultAction: refuse, Architectures: []specs.Arch{"X"}}, "is for"},
		{"errno", specs.LinuxSeccomp{DefaultAction: refuse, DefaultErrnoRet: &big}, "out of range"},
		{"trace", specs.LinuxSeccomp{DefaultAction: specs.ActTrace, DefaultErrnoRet: &big}, "out of range"},
		{"errno of allow", specs.LinuxSeccomp{DefaultAction: allow, DefaultErrnoRet: new(uint)}, "takes no errno"},
		{"notify", profileOf(seccompRule("read", specs.ActNotify)), "not supported"},
		{"misspelt refusal", profileOf(seccompRule("unshar", refuse)), "unknown system call"},
		{"operator", profileOf(seccompRule("read", allow, seccompArg(0, "SCMP_CMP_XX", 1))), "unknown operator"},
		{"index", profileOf(seccompRule("read", allow, seccompArg(6, specs.OpEqualTo, 1))), "counted from 0"},
		{"twice", profileOf(seccompRule("read", allow, seccompArg(1, masked, 1, 1), seccompArg(1, masked, 2, 0))), "twice"},
		{"never equal", profileOf(seccompRule("read", refuse, seccompArg(1, masked, 1, 2))), "outside the mask"},
		{"overlap", profileOf(seccompRule("read", refuse, seccompArg(1, masked, 1, 1)), seccompRule("read", allow)), "rules 1 and 2"},
		{"overlap of arguments", profileOf(seccompRule("read", refuse, seccompArg(1, specs.OpEqualTo, 1)),
			seccompRule("read", allow, seccompArg(2, specs.OpEqualTo, 1))), "rules 1 and 2"},
		{"overlap of mask and range", profileOf(seccompRule("read", refuse, seccompArg(1, masked, 0xf0, 0x50)),
			seccompRule("read", allow, seccompArg(1, specs.OpGreaterThan, 1<<60))), "rules 1 and 2"},
	} {
		if _, err := CompileSeccomp(&c.p, bpfArch); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	for _, arch := range []string{"", "386", "riscv64"} {
		if _, err := CompileSeccomp(ourProfile(t), arch); err == nil {
			t.Errorf("compiled for architecture %q", arch)
		}
	}
}

// Rules that come close to each other but do not contradict.
func TestCompileAccepts(t *testing.T) {
	allow, refuse, masked := specs.ActAllow, specs.ActErrno, specs.OpMaskedEqual
	for _, p := range []specs.LinuxSeccomp{
		profileOf(),
		profileOf(seccompRule("stime", refuse), seccompRule("nonesuch", allow)),
		profileOf(seccompRule("read", allow), seccompRule("read", allow, seccompArg(1, specs.OpEqualTo, 1))),
		profileOf(seccompRule("read", refuse, seccompArg(1, specs.OpLessThan, 0)),
			seccompRule("read", allow)),
		profileOf(seccompRule("read", refuse, seccompArg(1, specs.OpLessEqual, 9)),
			seccompRule("read", allow, seccompArg(1, specs.OpGreaterThan, 9))),
		profileOf(seccompRule("read", refuse, seccompArg(1, specs.OpEqualTo, 9)),
			seccompRule("read", allow, seccompArg(1, specs.OpNotEqual, 9))),
		profileOf(seccompRule("read", refuse, seccompArg(1, masked, 3, 1)),
			seccompRule("read", allow, seccompArg(1, masked, 3, 2))),
		profileOf(seccompRule("read", refuse, seccompArg(1, masked, 0xf, 5)),
			seccompRule("read", allow, seccompArg(1, specs.OpLessThan, 5))),
		profileOf(seccompRule("read", refuse, seccompArg(1, masked, 0, 0))),
	} {
		filter := mustCompile(t, &p)
		everyCall(&p, callNumbers(), func(number uint32, args [6]uint64) {
			got, err := interpret(filter, seccompData(bpfAuditArch, number, args))
			if want := oracle(&p, callNumbers(), number, args); err != nil || got != want {
				t.Fatalf("%+v: call %d %#x: %#x, %v; want %#x", p.Syscalls, number, args, got, err, want)
			}
		})
	}
}

func profileOf(rules ...specs.LinuxSyscall) specs.LinuxSeccomp {
	return specs.LinuxSeccomp{DefaultAction: specs.ActKill, Syscalls: rules}
}

// A filter of more instructions than a comparison can jump over.
func TestCompileLong(t *testing.T) {
	var rules []specs.LinuxSyscall
	numbers := callNumbers()
	for name, number := range numbers {
		if number%2 == 0 {
			continue // all of them are more than the kernel takes
		}
		e := uint(number + 1)
		r := seccompRule(name, specs.ActErrno,
			seccompArg(uint(number%6), specs.OpGreaterThan, 1<<40+uint64(number)),
			seccompArg(uint((number+1)%6), specs.OpMaskedEqual, 0xf0f0f0f0f0f0, 0x101010101010))
		r.ErrnoRet = &e
		rules = append(rules, r)
	}
	p := profileOf(rules...)
	filter := mustCompile(t, &p)
	t.Logf("%d instructions", len(filter))
	for name, number := range numbers {
		for _, a := range [][2]uint64{{1 << 41, 0x101010101010}, {1<<40 + uint64(number), 0x101010101010}, {1 << 41, 0}} {
			var args [6]uint64
			args[number%6], args[(number+1)%6] = a[0], a[1]
			got, err := interpret(filter, seccompData(bpfAuditArch, number, args))
			if want := oracle(&p, numbers, number, args); err != nil || got != want {
				t.Fatalf("%s %#x: %#x, %v; want %#x", name, args, got, err, want)
			}
		}
	}
	for i := range uint64(900) {
		spread := i&0xf<<4 | i>>4&0xf<<12 | i>>8<<20 // so that no search over ranges finds it
		p.Syscalls = append(p.Syscalls, seccompRule("ppoll", specs.ActKill, seccompArg(0, specs.OpMaskedEqual, 0xf0f0f0f0f0f0, spread)))
	}
	p.Syscalls = slices.DeleteFunc(p.Syscalls, func(r specs.LinuxSyscall) bool {
		return r.Names[0] == "ppoll" && r.Action != specs.ActKill
	})
	if _, err := CompileSeccomp(&p, bpfArch); err == nil || !strings.Contains(err.Error(), "the kernel takes 4096") {
		t.Errorf("too many instructions: error %v", err)
	}
}

func TestEncodeFilter(t *testing.T) {
	filter := mustCompile(t, ourProfile(t))
	b := EncodeFilter(filter)
	back, err := DecodeFilter(b)
	if err != nil || !slices.Equal(back, filter) || len(b) != 8*len(filter) {
		t.Errorf("%d instructions became %d bytes and %d instructions, %v", len(filter), len(b), len(back), err)
	}
	for _, n := range []int{0, 1, 7, 9, 8 * (maxFilter + 1)} {
		if _, err := DecodeFilter(make([]byte, n)); err == nil {
			t.Errorf("%d bytes were taken for a filter", n)
		}
	}
	if _, err := DecodeFilter(make([]byte, 8*maxFilter)); err != nil {
		t.Error(err)
	}
}

func BenchmarkCompile(b *testing.B) {
	p := ourProfile(b)
	for b.Loop() {
		mustCompile(b, p)
	}
}
