package forkexec

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// maxFilter is the number of instructions that the kernel takes: BPF_MAXINSNS of linux/bpf_common.h.
const maxFilter = 4096

// x32Bit marks the number of a system call made through the x32 interface of amd64: __X32_SYSCALL_BIT.
const x32Bit = 0x40000000

// CompileSeccomp turns an OCI profile into a filter for the kernel. arch is a GOARCH and has to be the one of this
// binary; whatever other architectures the profile names, their calls kill the process. Calls of x32 answer ENOSYS, as
// from a kernel that is built without it, where libseccomp kills: so a program that only asks is not killed, nor one
// whose tracer skips a call by the number -1, which has the bit of x32 too.
//
// The rules of a call may not contradict each other: rules with different actions whose conditions can hold at the same
// time are an error, and so are two comparisons of one argument in a rule, which runc reads as "or" and the
// specification as "and". Everything that is not understood is an error too, with one exception: a rule for a call that
// this architecture does not have is without effect.
//
// The filter finds a call by binary search over ranges of numbers with the same outcome, because the kernel runs a new
// filter once for every number that it knows: a list of 300 comparisons takes it ten times as long to load.
func CompileSeccomp(profile *specs.LinuxSeccomp, arch string) ([]unix.SockFilter, error) {
	numbers := callNumbers()
	if arch != bpfArch || numbers == nil {
		return nil, fmt.Errorf("compile seccomp profile: no table of system calls for architecture %q", arch)
	}
	calls, err := readProfile(profile, numbers)
	if err != nil {
		return nil, fmt.Errorf("compile seccomp profile: %w", err)
	}
	filter := assembleFilter(calls)
	if len(filter) > maxFilter {
		return nil, fmt.Errorf("compile seccomp profile: %d instructions, and the kernel takes %d", len(filter), maxFilter)
	}
	return filter, nil
}

// bpfCalls is a profile by numbers: what to return for each call that has rules, and for all the others.
type bpfCalls struct {
	other uint32
	rules [][]bpfRule // by number
}

// readProfile checks a profile and brings it into the terms of the kernel.
func readProfile(profile *specs.LinuxSeccomp, numbers map[string]uint32) (*bpfCalls, error) {
	if len(profile.Flags) > 0 || profile.ListenerPath != "" {
		return nil, fmt.Errorf("flags and listeners are not supported")
	}
	native := specs.ArchX86_64
	if bpfArch == "arm64" {
		native = specs.ArchAARCH64
	}
	if len(profile.Architectures) > 0 && !slices.Contains(profile.Architectures, native) {
		return nil, fmt.Errorf("the profile is for %v, not for %s", profile.Architectures, native)
	}
	other, err := returnValue(profile.DefaultAction, profile.DefaultErrnoRet)
	if err != nil {
		return nil, fmt.Errorf("default action: %w", err)
	}
	calls := &bpfCalls{other: other, rules: make([][]bpfRule, 1+slices.Max(slices.Collect(maps.Values(numbers))))}
	for i := range profile.Syscalls {
		if err := calls.add(&profile.Syscalls[i], numbers); err != nil {
			return nil, err
		}
	}
	for number, rules := range calls.rules {
		if a, b, ok := contradiction(rules); ok {
			return nil, fmt.Errorf("call %d: its rules %d and %d can hold at the same time, with different actions",
				number, a+1, b+1)
		}
	}
	return calls, nil
}

// add takes in one entry of a profile: a rule for each of its names.
func (c *bpfCalls) add(entry *specs.LinuxSyscall, numbers map[string]uint32) error {
	ret, err := returnValue(entry.Action, entry.ErrnoRet)
	if err != nil {
		return fmt.Errorf("%q: %w", entry.Names, err)
	}
	conds, err := readConds(entry.Args)
	if err != nil {
		return fmt.Errorf("%q: %w", entry.Names, err)
	}
	first := make([]bpfRule, len(entry.Names)) // most calls have no other
	for i, name := range entry.Names {
		if number, ok := numbers[name]; ok {
			if c.rules[number] == nil {
				c.rules[number] = first[i : i : i+1]
			}
			c.rules[number] = append(c.rules[number], bpfRule{conds, ret})
			continue
		}
		// Skipping an "allow" is safe whatever the name is. Skipping a refusal because of a slip of the pen is not.
		if ret != unix.SECCOMP_RET_ALLOW && !slices.Contains(otherCalls(), name) {
			return fmt.Errorf("unknown system call %q", name)
		}
	}
	return nil
}

// returnValue is what a filter returns for an action. errno is the number that comes with it, for those that take one.
func returnValue(action specs.LinuxSeccompAction, errno *uint) (uint32, error) {
	number := uint(unix.EPERM) // OCI's default
	if errno != nil {
		number = *errno
	}
	switch action {
	case specs.ActErrno:
		if number > 4095 { // MAX_ERRNO of linux/err.h: the kernel would cut it
			return 0, fmt.Errorf("errno %d is out of range", number)
		}
		return unix.SECCOMP_RET_ERRNO | uint32(number), nil
	case specs.ActTrace:
		if number > unix.SECCOMP_RET_DATA {
			return 0, fmt.Errorf("number %d for the tracer is out of range", number)
		}
		return unix.SECCOMP_RET_TRACE | uint32(number), nil
	}
	ret, ok := map[specs.LinuxSeccompAction]uint32{
		specs.ActAllow:       unix.SECCOMP_RET_ALLOW,
		specs.ActLog:         unix.SECCOMP_RET_LOG,
		specs.ActTrap:        unix.SECCOMP_RET_TRAP,
		specs.ActKill:        unix.SECCOMP_RET_KILL_THREAD,
		specs.ActKillThread:  unix.SECCOMP_RET_KILL_THREAD,
		specs.ActKillProcess: unix.SECCOMP_RET_KILL_PROCESS,
	}[action]
	switch {
	case !ok: // SCMP_ACT_NOTIFY as well: there is no one here to be notified
		return 0, fmt.Errorf("action %q is not supported", action)
	case errno != nil:
		return 0, fmt.Errorf("action %q takes no errno", action)
	}
	return ret, nil
}

// EncodeFilter writes a filter as bytes, as the kernel has it in memory on this machine: 8 for each instruction.
func EncodeFilter(filter []unix.SockFilter) []byte {
	b := make([]byte, 0, 8*len(filter))
	for _, f := range filter {
		b = binary.NativeEndian.AppendUint16(b, f.Code)
		b = append(b, f.Jt, f.Jf)
		b = binary.NativeEndian.AppendUint32(b, f.K)
	}
	return b
}

// DecodeFilter reads what EncodeFilter wrote. It can detect that bytes are no filter, but not that they are another filter
// than the one that was written: who keeps them must keep them where only he can write.
func DecodeFilter(b []byte) ([]unix.SockFilter, error) {
	if len(b) == 0 || len(b)%8 != 0 || len(b)/8 > maxFilter {
		return nil, fmt.Errorf("decode seccomp filter: %d bytes are no filter", len(b))
	}
	filter := make([]unix.SockFilter, len(b)/8)
	for i := range filter {
		f := b[8*i:]
		filter[i] = unix.SockFilter{
			Code: binary.NativeEndian.Uint16(f), Jt: f[2], Jf: f[3], K: binary.NativeEndian.Uint32(f[4:]),
		}
	}
	return filter, nil
}

// CallNumber is the number of a system call on this machine, if it has that call.
func CallNumber(name string) (uint32, bool) {
	n, ok := callNumbers()[name]
	return n, ok
}
