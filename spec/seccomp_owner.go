package spec

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// passOverOwners is for a program that sees itself as root. Inside, no id exists but its own, and the kernel answers EINVAL where
// it gives a file to another: tar, cp -a, rsync and npm then fail, since root can do that. The filter answers these calls as a
// file system without owners does that is mounted "quiet": they succeed and change nothing. What names the program's own id, or
// leaves owner or group as it is, goes to the kernel.
//
// The program's own id is 0. Whatever has the top bit set is taken for the -1 that means no change: as an id the kernel refuses it.
func passOverOwners(s *specs.LinuxSeccomp) {
	const top = 31
	bits := func(index uint, mask, value uint64) specs.LinuxSeccompArg {
		return specs.LinuxSeccompArg{Index: index, Value: mask, ValueTwo: value, Op: specs.OpMaskedEqual}
	}
	for _, call := range []struct {
		names []string
		owner uint // its argument; the group is the next
	}{{[]string{"chown", "fchown", "lchown"}, 1}, {[]string{"fchownat"}, 2}} {
		names := takeAllowed(s, call.names)
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

// takeAllowed takes calls out of the rule that allows them whatever their arguments are, and says which were there.
func takeAllowed(s *specs.LinuxSeccomp, names []string) []string {
	var taken []string
	for i := range s.Syscalls {
		r := &s.Syscalls[i]
		if r.Action != specs.ActAllow || len(r.Args) > 0 {
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
