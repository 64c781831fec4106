package diagnose

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/fault"
)

// rootNeeds are the capabilities without which root cannot make a sandbox. Somebody else gets them with a user namespace, but
// to map the host's user 0 into one takes CAP_SETFCAP from Linux 5.12 on, and libcontainer enters what it makes from outside.
func rootNeeds() []struct {
	name string
	bit  uint
} {
	return []struct {
		name string
		bit  uint
	}{
		{"CAP_SETGID", unix.CAP_SETGID},
		{"CAP_SYS_CHROOT", unix.CAP_SYS_CHROOT},
		{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN},
		{"CAP_SETFCAP", unix.CAP_SETFCAP},
	}
}

// lackingCapabilities are those that are not in a set as /proc shows it. Of what cannot be read none is lacking.
func lackingCapabilities(set string) []string {
	have, err := strconv.ParseUint(set, 16, 64)
	if err != nil {
		return nil
	}
	var list []string
	for _, c := range rootNeeds() {
		if have>>c.bit&1 == 0 {
			list = append(list, c.name)
		}
	}
	return list
}

func (a Around) capabilityRemedy() Remedy {
	return Remedy{
		"root lacks " + strings.Join(a.lacking, ", ") + " here",
		"give it to the launcher (CapabilityBoundingSet= of systemd, --cap-add of docker), or start that as an unprivileged user",
	}
}

// Lacking is an error where root lacks what making a sandbox takes, else nil.
func Lacking(doing string, err error) *fault.Error {
	a := Surroundings()
	if len(a.lacking) == 0 {
		return nil
	}
	return &fault.Error{Code: fault.CapabilityMissing, Hint: a.capabilityRemedy().hint(), Err: fmt.Errorf("%s: root lacks %s: %w", doing, strings.Join(a.lacking, ", "), err)}
}
