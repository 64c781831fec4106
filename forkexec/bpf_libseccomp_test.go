//go:build cgo

package forkexec

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"
)

// libseccompFilter makes the filter of a profile as runc does, but by the calls' numbers: libseccomp may be older than
// some of them. With optimize 2, which runc asks for, the filter is a tree; with 1 a list.
func libseccompFilter(t testing.TB, p *specs.LinuxSeccomp, optimize int) []unix.SockFilter {
	t.Helper()
	action := func(a specs.LinuxSeccompAction, errno *uint) libseccomp.ScmpAction {
		switch {
		case a == specs.ActAllow:
			return libseccomp.ActAllow
		case a == specs.ActErrno && errno != nil:
			return libseccomp.ActErrno.SetReturnCode(int16(*errno))
		}
		t.Fatalf("action %s", a)
		return libseccomp.ActInvalid
	}
	ops := map[specs.LinuxSeccompOperator]libseccomp.ScmpCompareOp{
		specs.OpEqualTo: libseccomp.CompareEqual, specs.OpNotEqual: libseccomp.CompareNotEqual,
		specs.OpLessThan: libseccomp.CompareLess, specs.OpLessEqual: libseccomp.CompareLessOrEqual,
		specs.OpGreaterThan: libseccomp.CompareGreater, specs.OpGreaterEqual: libseccomp.CompareGreaterEqual,
		specs.OpMaskedEqual: libseccomp.CompareMaskedEqual,
	}
	f, err := libseccomp.NewFilter(action(p.DefaultAction, p.DefaultErrnoRet))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Release()
	if err := f.SetOptimize(optimize); err != nil {
		t.Fatal(err)
	}
	numbers := callNumbers()
	for _, r := range p.Syscalls {
		var conds []libseccomp.ScmpCondition
		for _, a := range r.Args {
			cond, err := libseccomp.MakeCondition(a.Index, ops[a.Op], a.Value, a.ValueTwo)
			if err != nil {
				t.Fatal(err)
			}
			conds = append(conds, cond)
		}
		for _, name := range r.Names {
			number, ok := numbers[name]
			if !ok {
				continue
			}
			call, act := libseccomp.ScmpSyscall(number), action(r.Action, r.ErrnoRet)
			if len(conds) == 0 {
				err = f.AddRule(call, act)
			} else {
				err = f.AddRuleConditional(call, act, conds)
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "filter"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := f.ExportBPF(file); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	filter, err := DecodeFilter(b)
	if err != nil {
		t.Fatal(err)
	}
	return filter
}

// Our filter and libseccomp's decide every call alike.
func TestCompileLikeLibseccomp(t *testing.T) {
	socket := func(op specs.LinuxSeccompOperator, v uint64) specs.LinuxSyscall {
		return seccompRule("socket", specs.ActAllow, seccompArg(0, op, v))
	}
	// What moby says of socket and personality, whole numbers compared, and one rule with several arguments.
	moby := profileOf(socket(specs.OpLessThan, 3), socket(specs.OpEqualTo, 10), socket(specs.OpEqualTo, 16),
		seccompRule("personality", specs.ActAllow, seccompArg(0, specs.OpEqualTo, 0x20008)),
		seccompRule("personality", specs.ActAllow, seccompArg(0, specs.OpEqualTo, 0xffffffff)),
		seccompRule("ioctl", specs.ActAllow, seccompArg(1, specs.OpNotEqual, unix.TIOCSTI)),
		seccompRule("mmap", specs.ActAllow, seccompArg(2, specs.OpMaskedEqual, 4, 0), seccompArg(3, specs.OpLessEqual, 1<<33|5)),
		seccompRule("mprotect", specs.ActAllow, seccompArg(2, specs.OpGreaterThan, 1<<33|5)),
		seccompRule("lseek", specs.ActAllow, seccompArg(1, specs.OpGreaterEqual, 1<<33|5), seccompArg(2, specs.OpEqualTo, 1)))
	moby.DefaultAction = specs.ActErrno
	moby.DefaultErrnoRet = new(uint)
	*moby.DefaultErrnoRet = uint(unix.EPERM)
	for i, p := range []*specs.LinuxSeccomp{ourProfile(t), &moby, ourProfile(t), &moby} {
		ours, theirs := mustCompile(t, p), libseccompFilter(t, p, 1+i/2)
		t.Logf("%d instructions, libseccomp %d", len(ours), len(theirs))
		n := 0
		everyCall(p, callNumbers(), func(number uint32, args [6]uint64) {
			if bpfArch == "amd64" && number >= x32Bit {
				return // libseccomp kills; CompileSeccomp says why it does not
			}
			n++
			data := seccompData(bpfAuditArch, number, args)
			got, err := interpret(ours, data)
			want, err2 := interpret(theirs, data)
			if err != nil || err2 != nil || got != want {
				t.Errorf("call %d %#x: %#x, %v; libseccomp %#x, %v", number, args, got, err, want, err2)
			}
		})
		t.Logf("%d calls", n)
		if slices.Equal(ours, theirs) {
			t.Error("the same filter: the comparison compares nothing")
		}
	}
}

func BenchmarkLibseccomp(b *testing.B) {
	p := ourProfile(b)
	for b.Loop() {
		libseccompFilter(b, p, 2)
	}
}
