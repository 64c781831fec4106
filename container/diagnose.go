package container

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/procfs"
	"github.com/sandboxrun/sandboxrun/forkexec"
)

// need is a step that every sandbox takes. The error of a sandbox that cannot be made and the doctor's row are both made
// of it.
type need struct {
	step forkexec.ProbeStep
	name string // of the doctor's row
	code string
	what string // that the machine does not let the caller do
	fix  func(errno unix.Errno, a around) remedy
}

// needs are the steps in the order in which they are tried.
func needs() []need {
	return []need{
		{forkexec.ProbeUserns, "user_namespace", "userns_denied", "make a user namespace", usernsRemedy},
		{forkexec.ProbeMap, "user_mapping", "userns_denied", "map a user in a new user namespace", mapRemedy},
		{forkexec.ProbeNamespaces, "namespaces", "namespaces_denied", "make namespaces in a user namespace", namespacesRemedy},
		{forkexec.ProbeMount, "mounts", "mount_denied", "mount in a user namespace", restrictedRemedy},
		{forkexec.ProbeAttr, "mount_attributes", "mount_denied", "make a mount read-only with all below it", attrRemedy},
		{forkexec.ProbeNetwork, "network_namespace", "netns_denied", "make a network namespace", networkRemedy},
		{forkexec.ProbeProc, "proc", "proc_denied", "mount a fresh /proc", procRemedy},
		{forkexec.ProbeNested, "nested_user_namespace", "userns_denied", "make a user namespace in a user namespace", usernsRemedy},
	}
}

// remedy is why something is refused, and the one command that changes that.
type remedy struct{ why, command string }

func (r remedy) hint() string { return r.why + ": " + r.command }

// diagnosis is which step fails here; none where err is nil.
type diagnosis struct {
	step    forkexec.ProbeStep
	err     *Error
	remedy  remedy
	missing []string // what has not been shown to work: the step and all after it
}

// Diagnose finds out why no sandbox can be made here by trying each step by itself. It is nil where all of them work.
func Diagnose() *Error {
	step, errno := forkexec.Probe()
	return diagnose(step, errno, surroundings()).err
}

func diagnose(step forkexec.ProbeStep, errno unix.Errno, a around) diagnosis {
	list := needs()
	at := slices.IndexFunc(list, func(n need) bool { return n.step == step })
	if at < 0 {
		return diagnosis{step: step}
	}
	n := list[at]
	d := diagnosis{step: step, remedy: n.fix(errno, a)}
	switch errno {
	case unix.EAGAIN:
		d.err = fail(CodeLimitReached, processesHint, "%s: no more processes can be started: %w", n.what, errno)
		d.remedy = remedy{command: processesHint}
	case unix.EMFILE, unix.ENFILE:
		d.err = fail(CodeLimitReached, Scarce(errno), "%s: %w", n.what, errno)
		d.remedy = remedy{command: Scarce(errno)}
	default:
		d.err = fail(n.code, d.remedy.hint(), "this machine does not let user %d %s: %w", a.uid, n.what, errno)
		for _, lacking := range list[at:] {
			d.missing = append(d.missing, words(lacking.name))
		}
	}
	d.err.found = &d
	return d
}

// words is a row's name as people read it.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// noNextBest says of a machine that cannot make a sandbox, where the policy would do with less, what is missing: there is
// nothing less that these could be replaced by.
func noNextBest(err error, bestEffort bool) error {
	var e *Error
	if !bestEffort || !errors.As(err, &e) || e.found == nil || len(e.found.missing) == 0 {
		return err
	}
	longer := *e
	longer.Err = fmt.Errorf(`%w; enforce = "best_effort" has no next best for what is missing: %s`, e.Err, strings.Join(e.found.missing, ", "))
	return &longer
}

// around is what surrounds the caller and may refuse it something.
type around struct {
	uid        int
	filter     bool   // a seccomp filter is in place already
	noNewPrivs bool   // setuid files have no effect already
	profile    string // of AppArmor or another security module; empty: none
	setting    func(name string) string
	lacking    []string // capabilities that root needs and does not have
}

func surroundings() around {
	a := around{uid: os.Geteuid(), setting: sysctl}
	data, _ := os.ReadFile("/proc/thread-self/status")
	status := procfs.StatusFields(string(data))
	a.filter, a.noNewPrivs = status["Seccomp"] == "2", status["NoNewPrivs"] == "1"
	if a.uid == 0 {
		a.lacking = lackingCapabilities(status["CapEff"])
	}
	label, _ := os.ReadFile("/proc/thread-self/attr/current")                                  // not there, or an error, without a security module
	if text := strings.Trim(string(label), "\x00\n "); !strings.Contains(text, "unconfined") { // of AppArmor or SELinux, which has more around the word
		a.profile = text
	}
	return a
}

// sysctl reads a kernel setting; it is empty where there is none.
func sysctl(name string) string {
	data, _ := os.ReadFile("/proc/sys/" + name)
	return strings.TrimSpace(string(data))
}

// asRoot is a command that needs root.
func (a around) asRoot(command string) string {
	if a.uid == 0 {
		return command
	}
	return "sudo " + command
}

func (a around) set(name, value string) string { return a.asRoot("sysctl -w " + name + "=" + value) }

// apparmorRestricts is Ubuntu's setting: user namespaces can be made, and give nothing.
func (a around) apparmorRestricts() bool {
	return a.setting("kernel/apparmor_restrict_unprivileged_userns") == "1"
}

// appArmorFile is where the profile of this program belongs.
const appArmorFile = "/etc/apparmor.d/sandboxrun"

func (a around) appArmorRemedy() remedy {
	return remedy{
		"AppArmor restricts user namespaces to programs with a profile that allows them",
		"sandboxrun doctor --print-apparmor | " + a.asRoot("tee "+appArmorFile) + " && " + a.asRoot("apparmor_parser -r "+appArmorFile),
	}
}

// outerOptions are what lets an outer container's processes make sandboxes.
const outerOptions = "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"

func usernsRemedy(errno unix.Errno, a around) remedy {
	const room = "10000"
	switch most := a.setting("user/max_user_namespaces"); {
	case most == "0":
		return remedy{"user.max_user_namespaces is 0", a.set("user.max_user_namespaces", room)}
	case errno == unix.ENOSPC:
		return remedy{"the limit of user namespaces is reached, user.max_user_namespaces here or outside", a.set("user.max_user_namespaces", room)}
	case a.setting("kernel/unprivileged_userns_clone") == "0":
		return remedy{"kernel.unprivileged_userns_clone is 0", a.set("kernel.unprivileged_userns_clone", "1")}
	}
	return restrictedRemedy(errno, a)
}

// mapRemedy: no seccomp filter can see which file is written.
func mapRemedy(errno unix.Errno, a around) remedy {
	switch {
	case len(a.lacking) > 0:
		return a.capabilityRemedy()
	case errno == unix.ENOENT:
		return remedy{"/proc is not mounted", a.asRoot("mount -t proc proc /proc")}
	case a.apparmorRestricts():
		return a.appArmorRemedy()
	}
	return restrictedRemedy(errno, a)
}

func restrictedRemedy(_ unix.Errno, a around) remedy {
	switch {
	case a.filter: // by which one cannot tell what else would refuse it
		return remedy{"an outer container's seccomp filter refuses it", outerOptions}
	case a.apparmorRestricts():
		return a.appArmorRemedy()
	case a.profile != "":
		return remedy{fmt.Sprintf("the security profile %q refuses it", a.profile), outerOptions}
	}
	return remedy{"a security module refuses it, or this is a chroot; the kernel's log may say more", a.asRoot("dmesg")}
}

func namespacesRemedy(errno unix.Errno, a around) remedy {
	if errno == unix.ENOSPC {
		return remedy{
			"one of the limits of namespaces is reached",
			a.asRoot("sysctl -w user.max_mnt_namespaces=10000 user.max_ipc_namespaces=10000 " +
				"user.max_uts_namespaces=10000 user.max_pid_namespaces=10000"),
		}
	}
	return restrictedRemedy(errno, a)
}

func networkRemedy(errno unix.Errno, a around) remedy {
	if errno == unix.ENOSPC {
		return remedy{"the limit of network namespaces is reached", a.set("user.max_net_namespaces", "10000")}
	}
	return restrictedRemedy(errno, a)
}

func attrRemedy(errno unix.Errno, a around) remedy {
	if errno == unix.ENOSYS && !a.filter {
		return remedy{"the kernel has no such call", newerKernel}
	}
	return restrictedRemedy(errno, a)
}

// newerKernel is what to do where the kernel lacks something that every sandbox needs.
const newerKernel = "boot Linux 5.14 or later"

func procRemedy(errno unix.Errno, a around) remedy {
	if errno == unix.EPERM {
		return remedy{"parts of the outer container's /proc are covered", "docker run --security-opt systempaths=unconfined"}
	}
	return restrictedRemedy(errno, a)
}
