package hooks

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// unreachable reports whether an error shows that the target is not in this network.
func unreachable(err error) bool {
	for _, e := range []unix.Errno{
		unix.ECONNREFUSED, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EADDRNOTAVAIL, unix.EAFNOSUPPORT, unix.ENOENT,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// ErrSilence is the result of a datagram with neither an answer nor an error.
var ErrSilence = errors.New("no answer")

const hostNetwork = "not claimed: the policy gives the host's network"

func judgeReach(s *Subject, list []Reach, v *verdict) {
	if !s.Network {
		v.lack(hostNetwork)
		return
	}
	answered := 0
	for _, r := range list {
		if r.Outside == nil {
			answered++
		}
		switch {
		case r.Outside != nil:
			v.lack("%s does not answer outside either: %v", r.Target, r.Outside)
		case r.Inside == nil:
			v.fail("%s of the host was reached", r.Target)
		case unreachable(r.Inside), errors.Is(r.Inside, ErrSilence):
			v.hold()
		default:
			v.lack("%s: %v", r.Target, r.Inside)
		}
	}
	v.control = fmt.Sprintf("%d of %d answered outside", answered, len(list))
}

func judgeTCP(s *Subject, f *Facts, v *verdict) {
	judgeReach(s, f.TCP, v)
	if s.Network && f.OwnLoopback != nil {
		v.lack("the sandbox's own loopback does not answer: %v", f.OwnLoopback)
	}
}

func judgeUDP(s *Subject, f *Facts, v *verdict) { judgeReach(s, f.UDP, v) }

func judgeAbstract(s *Subject, f *Facts, v *verdict) { judgeReach(s, f.Abstract, v) }

func judgeForwards(s *Subject, f *Facts, v *verdict) {
	if len(s.Forwards) == 0 {
		v.lack("no port is forwarded")
	}
	for _, r := range f.Forwards {
		if r.Inside != nil {
			v.fail("%s does not answer: %v", r.Target, r.Inside)
		} else {
			v.hold()
		}
	}
}

// status returns a field of /proc/self/status.
func status(m map[string]string, name string, v *verdict) (string, bool) {
	text, ok := m[name]
	if !ok {
		v.lack("/proc/self/status has no %s", name)
	}
	return text, ok
}

// lockedBits are the securebits of a program: uid 0 gives no capability, and all bits are locked.
const lockedBits = 0xef

func judgeCapabilities(_ *Subject, f *Facts, v *verdict) {
	for _, name := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		text, ok := status(f.Status, name, v)
		switch {
		case !ok:
		case strings.Trim(text, "0") != "":
			v.fail("%s is %s", name, text)
		default:
			v.hold()
		}
	}
	switch {
	case f.SecurebitsErr != nil:
		v.lack("securebits cannot be read: %v", f.SecurebitsErr)
	case f.Securebits&lockedBits != lockedBits:
		v.fail("securebits are %#x, not %#x", f.Securebits, lockedBits)
	default:
		v.hold()
	}
	before := f.StatusAtEntry["CapEff"]
	v.control = "CapEff was " + before
	if strings.Trim(before, "0") == "" {
		v.lack("the process had no capability before either")
	}
}

func judgeNoNewPrivs(_ *Subject, f *Facts, v *verdict) {
	text, ok := status(f.Status, "NoNewPrivs", v)
	switch {
	case !ok:
	case text != "1":
		v.fail("NoNewPrivs is %s", text)
	default:
		v.hold()
	}
	v.control = "NoNewPrivs was " + f.StatusAtEntry["NoNewPrivs"]
}

func judgeSeccomp(_ *Subject, f *Facts, v *verdict) {
	mode, ok := status(f.Status, "Seccomp", v)
	if !ok {
		return
	}
	filters := func(m map[string]string) int {
		n, err := strconv.Atoi(m["Seccomp_filters"]) // Linux 5.9
		if err != nil {
			return -1
		}
		return n
	}
	was, is := filters(f.StatusAtEntry), filters(f.Status)
	before := f.StatusAtEntry["Seccomp"]
	v.control = fmt.Sprintf("mode %s before", before)
	switch {
	case mode != "2":
		v.fail("the mode is %s, not 2", mode)
	case before != "2":
		v.hold()
	case was < 0 || is < 0:
		v.lack("the launcher has a filter too, and the kernel does not count them")
	case is <= was:
		v.fail("there is no filter beside the launcher's %d", was)
	default:
		v.hold()
		v.control = fmt.Sprintf("%d filters before, %d now", was, is)
	}
}

func judgeRefused(_ *Subject, f *Facts, v *verdict) {
	shown := 0
	for _, c := range f.Refused {
		switch {
		case !errors.Is(c.Filtered, c.Want):
			v.fail("%s answers %v, not %v", c.Name, orSuccess(c.Filtered), c.Want)
		case errors.Is(c.Unfiltered, c.Want):
			// The kernel gives this process the same error without a filter, so the call shows nothing about the filter.
		default:
			shown++
			v.hold()
		}
	}
	v.control = fmt.Sprintf("%d of %d calls have another result without the filter", shown, len(f.Refused))
	if shown == 0 {
		v.lack("no call has another result without the filter")
	}
}

func orSuccess(err error) error {
	if err == nil {
		return errSuccess
	}
	return err
}

var errSuccess = errors.New("success")

func judgeNamespaces(_ *Subject, f *Facts, v *verdict) {
	for _, n := range f.Namespaces {
		switch {
		case n.Shared:
		case n.Inside == 0, n.Host == 0, n.Process1 == 0:
			v.lack("the number of the %s namespace cannot be read everywhere", n.Name)
		case n.Inside == n.Host:
			v.fail("the %s namespace is the host's", n.Name)
		case n.PerExec && n.Inside == n.Process1:
			v.fail("the %s namespace is that of process 1", n.Name)
		default:
			v.hold()
		}
	}
	v.control = "compared with the launcher's and process 1's"
}

func judgeProcesses(_ *Subject, f *Facts, v *verdict) {
	if f.ProcessesErr != nil {
		v.lack("/proc cannot be listed: %v", f.ProcessesErr)
	}
	if !slices.Contains(f.Processes, 1) || !slices.Contains(f.Processes, 2) {
		v.lack("/proc does not list the exec's own processes")
	}
	for _, p := range f.Processes {
		if p > 2 {
			v.fail("the program sees process %d", p)
		}
	}
	if len(v.broken) == 0 {
		v.hold()
	}
	existing := 0
	for _, p := range f.Signalled {
		switch {
		case p.Outside != nil:
			v.lack("process %d does not exist outside: %v", p.PID, p.Outside)
			continue
		case errors.Is(p.Inside, unix.ESRCH):
			v.hold()
		case p.Inside == nil, errors.Is(p.Inside, unix.EPERM):
			v.fail("the program can find process %d of the host by a signal", p.PID)
		default:
			v.lack("signal to process %d: %v", p.PID, p.Inside)
		}
		existing++
	}
	v.control = fmt.Sprintf("%d processes that exist outside", existing)
}

func judgeDescriptors(_ *Subject, f *Facts, v *verdict) {
	if f.DescriptorsErr != nil {
		v.lack("/proc/self/fd cannot be listed: %v", f.DescriptorsErr)
		return
	}
	for fd := range 3 {
		if !slices.Contains(f.Descriptors, fd) {
			v.lack("descriptor %d is not open", fd)
		}
	}
	for _, fd := range f.Descriptors {
		if fd > 2 {
			v.fail("descriptor %d is open", fd)
		}
	}
	if len(v.broken) == 0 {
		v.hold()
	}
	v.control = fmt.Sprintf("the launcher has %d", f.HostDescriptors)
	if f.HostDescriptors <= 3 {
		v.lack("the launcher has no other descriptor that the program could have inherited")
	}
}

func judgeEnvironment(s *Subject, f *Facts, v *verdict) {
	for _, name := range f.Env {
		if slices.Contains(s.Env, name) {
			v.hold()
		} else if name != f.Canary {
			v.fail("%s is passed to the program", name)
		}
	}
	for _, name := range s.Env {
		if !slices.Contains(f.Env, name) {
			v.fail("%s is missing", name)
		}
	}
	named := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			ok, err := path.Match(p, f.Canary)
			return err == nil && ok
		})
	}
	allowed := named(s.EnvAllow) && !named(s.EnvDeny)
	switch {
	case f.Canary == "":
		v.lack("the caller has no variable that the policy does not allow")
	case allowed:
		v.lack("the policy allows every variable of the caller")
	case slices.Contains(f.Env, f.Canary):
		v.fail("a variable of the caller that the policy does not name is passed to the program")
	default:
		v.hold()
	}
	v.control = "the caller had " + f.Canary
}

func judgeLimits(_ *Subject, f *Facts, v *verdict) {
	higher := 0
	for _, l := range f.Limits {
		switch {
		case l.Err != nil:
			v.lack("%s cannot be read: %v", l.Name, l.Err)
		case l.Got > l.Want, l.Exact && l.Got != l.Want:
			v.fail("%s is %d, not %d", l.Name, l.Got, l.Want)
		default:
			v.hold()
		}
		if l.Host > l.Want {
			higher++
		}
	}
	for _, g := range f.Groups {
		switch {
		case g.Want != "" && strings.HasSuffix(g.Got, g.Want):
			v.hold()
		case g.Want != "":
			v.fail("the process is in cgroup %q for %s, not in one that ends in %q", g.Got, g.Controllers, g.Want)
		case g.Counted:
			v.hold()
		default:
			v.lack("the cgroup for %s has counted nothing", g.Controllers)
		}
	}
	if len(f.Limits)+len(f.Groups) == 0 {
		v.lack("the policy has no limit that the kernel enforces for a process")
		return
	}
	v.control = fmt.Sprintf("%d of %d are higher for the launcher; %d cgroups", higher, len(f.Limits), len(f.Groups))
}
