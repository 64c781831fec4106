package container

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
)

// Diagnose finds out why no sandbox can be made here by trying each step by itself. It is nil where all of them work.
func Diagnose() *Error {
	step, errno := forkexec.Probe()
	code, hint, what := "", "", ""
	switch step {
	case forkexec.ProbeOK:
		return nil
	case forkexec.ProbeUserns:
		code, what, hint = "userns_denied", "make a user namespace", usernsHint(errno, sysctl)
	case forkexec.ProbeMap:
		code, what, hint = "userns_denied", "map a user in a new user namespace", restrictedHint(sysctl)
	case forkexec.ProbeNamespaces:
		code, what, hint = "namespaces_denied", "make namespaces in a user namespace", restrictedHint(sysctl)
	case forkexec.ProbeMount:
		code, what, hint = "mount_denied", "mount in a user namespace", restrictedHint(sysctl)
	case forkexec.ProbeNetwork:
		code, what = "netns_denied", "make a network namespace"
		hint = "raise the limit: sysctl user.max_net_namespaces=10000"
	case forkexec.ProbeProc:
		code, what = "proc_denied", "mount a fresh /proc"
		hint = "parts of the outer container's /proc are covered: start that with --security-opt systempaths=unconfined"
	}
	switch errno {
	case unix.EAGAIN:
		return fail(CodeLimitReached, processesHint, "%s: no more processes can be started: %w", what, errno)
	case unix.EMFILE, unix.ENFILE:
		return fail(CodeLimitReached, Scarce(errno), "%s: %w", what, errno)
	}
	return fail(code, hint, "this machine does not let user %d %s: %w", os.Geteuid(), what, errno)
}

// sysctl reads a kernel setting; it is empty where there is none.
func sysctl(name string) string {
	data, _ := os.ReadFile("/proc/sys/" + name)
	return strings.TrimSpace(string(data))
}

func usernsHint(errno unix.Errno, setting func(string) string) string {
	if v := setting("user/max_user_namespaces"); v == "0" || errno == unix.ENOSPC {
		return fmt.Sprintf("user.max_user_namespaces is %s: as root, sysctl user.max_user_namespaces=10000", v)
	}
	if setting("kernel/unprivileged_userns_clone") == "0" {
		return "as root: sysctl kernel.unprivileged_userns_clone=1"
	}
	if setting("kernel/apparmor_restrict_unprivileged_userns") == "1" {
		return restrictedHint(setting)
	}
	return "an outer container's seccomp filter refuses it: start that with --security-opt seccomp=unconfined, " +
		"or with a profile that allows clone, unshare, setns and mount"
}

func restrictedHint(setting func(string) string) string {
	if setting("kernel/apparmor_restrict_unprivileged_userns") == "1" {
		return "AppArmor restricts user namespaces: give this binary a profile with the rule \"userns,\", " +
			"or as root: sysctl kernel.apparmor_restrict_unprivileged_userns=0"
	}
	return "a security module or an outer container's seccomp filter refuses it: in Docker, " +
		"--security-opt seccomp=unconfined --security-opt apparmor=unconfined"
}
