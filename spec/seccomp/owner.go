package seccomp

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// PassOverOwners is for a program that sees itself as root. Inside, its own id is the only one, so the kernel answers EINVAL to a
// chown to another id. tar, cp -a, rsync and npm then fail, because they expect that root can do it. The filter lets these calls
// succeed without a change, as a file system without owners does that is mounted "quiet". Calls with the program's own id, or with
// no change of owner or group, go to the kernel.
//
// The program's own id is 0. A number with the top bit set counts as -1, which means no change; the kernel refuses it as an id.
func PassOverOwners(s *specs.LinuxSeccomp) {
	const top = 31
	bits := func(index uint, mask, value uint64) specs.LinuxSeccompArg {
		return specs.LinuxSeccompArg{Index: index, Value: mask, ValueTwo: value, Op: specs.OpMaskedEqual}
	}
	for _, call := range []struct {
		names []string
		owner uint // its argument; the group is the next
	}{{[]string{"chown", "fchown", "lchown"}, 1}, {[]string{"fchownat"}, 2}} {
		names := take(s, specs.ActAllow, call.names)
		if len(names) == 0 {
			continue
		}
		own := func(index uint) []specs.LinuxSeccompArg {
			return []specs.LinuxSeccompArg{bits(index, 1<<(top+1)-1, 0), bits(index, 1<<top, 1<<top)}
		}
		for _, owner := range own(call.owner) {
			for _, group := range own(call.owner + 1) {
				s.Syscalls = append(s.Syscalls, allowIt().rule(names, owner, group))
			}
		}
		for index := call.owner; index <= call.owner+1; index++ {
			for bit := range top { // another id has one of these
				s.Syscalls = append(s.Syscalls, errno(0).rule(names, bits(index, 1<<top|1<<bit, 1<<bit)))
			}
		}
	}
}

// take removes calls from the rules that give them an action with all arguments, and returns those that it had.
func take(s *specs.LinuxSeccomp, action specs.LinuxSeccompAction, names []string) []string {
	var taken []string
	for i := range s.Syscalls {
		r := &s.Syscalls[i]
		if r.Action != action || len(r.Args) > 0 {
			continue
		}
		r.Names = slices.DeleteFunc(slices.Clone(r.Names), func(name string) bool {
			there := slices.Contains(names, name)
			if there {
				taken = append(taken, name)
			}
			return there
		})
	}
	return taken
}
