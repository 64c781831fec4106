package diagnose

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// Need is a step that every sandbox takes. The error of a sandbox that cannot be made and the doctor's row are both made
// of it.
type Need struct {
	Step forkexec.ProbeStep
	Name string // of the doctor's row
	code string
	what string // that the machine does not let the caller do
	fix  func(errno unix.Errno, a Around) Remedy
}

// Needs are the steps in the order in which they are tried.
func Needs() []Need {
	return []Need{
		{forkexec.ProbeUserns, "user_namespace", fault.UsernsDenied, "make a user namespace", usernsRemedy},
		{forkexec.ProbeMap, "user_mapping", fault.UsernsDenied, "map a user in a new user namespace", mapRemedy},
		{forkexec.ProbeNamespaces, "namespaces", fault.NamespacesDenied, "make namespaces in a user namespace", namespacesRemedy},
		{forkexec.ProbeMount, "mounts", fault.MountDenied, "mount in a user namespace", restrictedRemedy},
		{forkexec.ProbeAttr, "mount_attributes", fault.MountDenied, "make a mount read-only with all below it", attrRemedy},
		{forkexec.ProbeNetwork, "network_namespace", fault.NetnsDenied, "make a network namespace", networkRemedy},
		{forkexec.ProbeProc, "proc", fault.ProcDenied, "mount a fresh /proc", procRemedy},
		{forkexec.ProbeNested, "nested_user_namespace", fault.UsernsDenied, "make a user namespace in a user namespace", usernsRemedy},
	}
}

// Remedy is why something is refused, and the one command that changes that.
type Remedy struct{ Why, Command string }

func (r Remedy) hint() string { return r.Why + ": " + r.Command }

// Diagnosis is which step fails here; none where Err is nil.
type Diagnosis struct {
	Step    forkexec.ProbeStep
	Err     *fault.Error
	Remedy  Remedy
	Missing []string // what has not been shown to work: the step and all after it
}

// Machine finds out why no sandbox can be made here by trying each step by itself. It is nil where all of them work.
func Machine() *fault.Error {
	step, errno := forkexec.Probe()
	return Step(step, errno, Surroundings()).Err
}

// Step is the diagnosis of a step that has failed with an errno, in these surroundings.
func Step(step forkexec.ProbeStep, errno unix.Errno, a Around) Diagnosis {
	list := Needs()
	at := slices.IndexFunc(list, func(n Need) bool { return n.Step == step })
	if at < 0 {
		return Diagnosis{Step: step}
	}
	n := list[at]
	d := Diagnosis{Step: step, Remedy: n.fix(errno, a)}
	switch errno {
	case unix.EAGAIN:
		d.Err = fault.New(fault.LimitReached, ProcessesHint, "%s: no more processes can be started: %w", n.what, errno)
		d.Remedy = Remedy{Command: ProcessesHint}
	case unix.EMFILE, unix.ENFILE:
		d.Err = fault.New(fault.LimitReached, Scarce(errno), "%s: %w", n.what, errno)
		d.Remedy = Remedy{Command: Scarce(errno)}
	default:
		d.Err = fault.New(n.code, d.Remedy.hint(), "this machine does not let user %d %s: %w", a.UID, n.what, errno)
		for _, lacking := range list[at:] {
			d.Missing = append(d.Missing, words(lacking.Name))
		}
	}
	d.Err.Err = diagnosed{d.Err.Err, &d}
	return d
}

// diagnosed is the cause in an error that a diagnosis has made, by which the diagnosis is found again.
type diagnosed struct {
	error
	by *Diagnosis
}

// Unwrap gives the cause without the diagnosis.
func (d diagnosed) Unwrap() error { return d.error }

// Of is the diagnosis that has made an error, nil if none has.
func Of(err error) *Diagnosis {
	var d diagnosed
	if !errors.As(err, &d) {
		return nil
	}
	return d.by
}

// words is a row's name as people read it.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// NoNextBest says of a machine that cannot make a sandbox, where the policy would do with less, what is missing: there is
// nothing less that these could be replaced by.
func NoNextBest(err error, bestEffort bool) error {
	var e *fault.Error
	d := Of(err)
	if !bestEffort || !errors.As(err, &e) || d == nil || len(d.Missing) == 0 {
		return err
	}
	longer := *e
	longer.Err = fmt.Errorf(`%w; enforce = "best_effort" has no next best for what is missing: %s`, e.Err, strings.Join(d.Missing, ", "))
	return &longer
}

// Around is what surrounds the caller and may refuse it something.
type Around struct {
	UID        int
	Filter     bool   // a seccomp filter is in place already
	NoNewPrivs bool   // setuid files have no effect already
	Profile    string // of AppArmor or another security module; empty: none
	Setting    func(name string) string
	lacking    []string // capabilities that root needs and does not have
}

// Surroundings looks at what is around this process.
func Surroundings() Around {
	a := Around{UID: os.Geteuid(), Setting: sysctl}
	status, _ := procfs.Status("thread-self")
	a.Filter, a.NoNewPrivs = status["Seccomp"] == "2", status["NoNewPrivs"] == "1"
	if a.UID == 0 {
		a.lacking = lackingCapabilities(status["CapEff"])
	}
	label, _ := os.ReadFile("/proc/thread-self/attr/current")                                  // not there, or an error, without a security module
	if text := strings.Trim(string(label), "\x00\n "); !strings.Contains(text, "unconfined") { // of AppArmor or SELinux, which has more around the word
		a.Profile = text
	}
	return a
}

// sysctl reads a kernel setting; it is empty where there is none.
func sysctl(name string) string {
	data, _ := os.ReadFile("/proc/sys/" + name)
	return strings.TrimSpace(string(data))
}

// AsRoot is a command that needs root.
func (a Around) AsRoot(command string) string {
	if a.UID == 0 {
		return command
	}
	return "sudo " + command
}

// Set is a command that changes a kernel setting.
func (a Around) Set(name, value string) string { return a.AsRoot("sysctl -w " + name + "=" + value) }

// apparmorRestricts is Ubuntu's setting: user namespaces can be made, and give nothing.
func (a Around) apparmorRestricts() bool {
	return a.Setting("kernel/apparmor_restrict_unprivileged_userns") == "1"
}

// appArmorFile is where the profile of this program belongs.
const appArmorFile = "/etc/apparmor.d/sandboxrun"

func (a Around) appArmorRemedy() Remedy {
	return Remedy{
		"AppArmor restricts user namespaces to programs with a profile that allows them",
		"sandboxrun doctor --print-apparmor | " + a.AsRoot("tee "+appArmorFile) + " && " + a.AsRoot("apparmor_parser -r "+appArmorFile),
	}
}

// OuterOptions are what lets an outer container's processes make sandboxes.
const OuterOptions = "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"

func usernsRemedy(errno unix.Errno, a Around) Remedy {
	const room = "10000"
	switch most := a.Setting("user/max_user_namespaces"); {
	case most == "0":
		return Remedy{"user.max_user_namespaces is 0", a.Set("user.max_user_namespaces", room)}
	case errno == unix.ENOSPC:
		return Remedy{"the limit of user namespaces is reached, user.max_user_namespaces here or outside", a.Set("user.max_user_namespaces", room)}
	case a.Setting("kernel/unprivileged_userns_clone") == "0":
		return Remedy{"kernel.unprivileged_userns_clone is 0", a.Set("kernel.unprivileged_userns_clone", "1")}
	}
	return restrictedRemedy(errno, a)
}

// mapRemedy: no seccomp filter can see which file is written.
func mapRemedy(errno unix.Errno, a Around) Remedy {
	switch {
	case len(a.lacking) > 0:
		return a.capabilityRemedy()
	case errno == unix.ENOENT:
		return Remedy{"/proc is not mounted", a.AsRoot("mount -t proc proc /proc")}
	case a.apparmorRestricts():
		return a.appArmorRemedy()
	}
	return restrictedRemedy(errno, a)
}

func restrictedRemedy(_ unix.Errno, a Around) Remedy {
	switch {
	case a.Filter: // by which one cannot tell what else would refuse it
		return Remedy{"an outer container's seccomp filter refuses it", OuterOptions}
	case a.apparmorRestricts():
		return a.appArmorRemedy()
	case a.Profile != "":
		return Remedy{fmt.Sprintf("the security profile %q refuses it", a.Profile), OuterOptions}
	}
	return Remedy{"a security module refuses it, or this is a chroot; the kernel's log may say more", a.AsRoot("dmesg")}
}

func namespacesRemedy(errno unix.Errno, a Around) Remedy {
	if errno == unix.ENOSPC {
		return Remedy{
			"one of the limits of namespaces is reached",
			a.AsRoot("sysctl -w user.max_mnt_namespaces=10000 user.max_ipc_namespaces=10000 " +
				"user.max_uts_namespaces=10000 user.max_pid_namespaces=10000"),
		}
	}
	return restrictedRemedy(errno, a)
}

func networkRemedy(errno unix.Errno, a Around) Remedy {
	if errno == unix.ENOSPC {
		return Remedy{"the limit of network namespaces is reached", a.Set("user.max_net_namespaces", "10000")}
	}
	return restrictedRemedy(errno, a)
}

func attrRemedy(errno unix.Errno, a Around) Remedy {
	if errno == unix.ENOSYS && !a.Filter {
		return Remedy{"the kernel has no such call", NewerKernel}
	}
	return restrictedRemedy(errno, a)
}

// NewerKernel is what to do where the kernel lacks something that every sandbox needs.
const NewerKernel = "boot Linux 5.14 or later"

func procRemedy(errno unix.Errno, a Around) Remedy {
	if errno == unix.EPERM {
		return Remedy{"parts of the outer container's /proc are covered", "docker run --security-opt systempaths=unconfined"}
	}
	return restrictedRemedy(errno, a)
}
