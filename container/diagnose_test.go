package container

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/forkexec"
)

// settings makes a machine up: name, value, name, value ...
func settings(list ...string) func(string) string {
	return func(name string) string {
		for i := 0; i+1 < len(list); i += 2 {
			if list[i] == name {
				return list[i+1]
			}
		}
		return ""
	}
}

const restrict = "kernel/apparmor_restrict_unprivileged_userns"

func TestUsernsHints(t *testing.T) {
	const appArmor = "sandboxrun doctor --print-apparmor | sudo tee /etc/apparmor.d/sandboxrun && " +
		"sudo apparmor_parser -r /etc/apparmor.d/sandboxrun"
	for _, tt := range []struct {
		name   string
		step   forkexec.ProbeStep
		errno  unix.Errno
		around around
		code   string
		fix    string
	}{
		{
			"none allowed", forkexec.ProbeUserns, unix.ENOSPC,
			around{uid: 1000, setting: settings("user/max_user_namespaces", "0")},
			"userns_denied", "sudo sysctl -w user.max_user_namespaces=10000",
		},
		{
			"none left", forkexec.ProbeUserns, unix.ENOSPC,
			around{uid: 0, setting: settings("user/max_user_namespaces", "5")},
			"userns_denied", "sysctl -w user.max_user_namespaces=10000",
		},
		{
			"Debian", forkexec.ProbeUserns, unix.EPERM,
			around{uid: 1000, setting: settings("kernel/unprivileged_userns_clone", "0")},
			"userns_denied", "sudo sysctl -w kernel.unprivileged_userns_clone=1",
		},
		{"Ubuntu 24.04", forkexec.ProbeMap, unix.EPERM, around{uid: 1000, setting: settings(restrict, "1")}, "userns_denied", appArmor},
		{"Ubuntu 23.10", forkexec.ProbeUserns, unix.EACCES, around{uid: 1000, setting: settings(restrict, "1")}, "userns_denied", appArmor},
		{
			"Docker", forkexec.ProbeUserns, unix.EPERM, around{uid: 1000, filter: true, setting: settings()}, "userns_denied", outerOptions,
		},
		{
			"Docker on Ubuntu", forkexec.ProbeUserns, unix.EPERM,
			around{uid: 0, filter: true, setting: settings(restrict, "1")},
			"userns_denied", outerOptions,
		},
		{
			"a program with a filter on Ubuntu", forkexec.ProbeMap, unix.EPERM,
			around{uid: 1000, filter: true, setting: settings(restrict, "1")},
			"userns_denied", appArmor,
		},
		{
			"docker-default", forkexec.ProbeMount, unix.EACCES,
			around{profile: "docker-default (enforce)", setting: settings()},
			"mount_denied", outerOptions,
		},
		{"a module", forkexec.ProbeUserns, unix.EPERM, around{uid: 7, setting: settings()}, "userns_denied", "sudo dmesg"},
		{"no /proc", forkexec.ProbeMap, unix.ENOENT, around{setting: settings()}, "userns_denied", "mount -t proc proc /proc"},
		{"old kernel", forkexec.ProbeAttr, unix.ENOSYS, around{setting: settings()}, "mount_denied", newerKernel},
		{"networks", forkexec.ProbeNetwork, unix.ENOSPC, around{setting: settings()}, "netns_denied", "sysctl -w user.max_net_namespaces=10000"},
		{
			"covered", forkexec.ProbeProc, unix.EPERM,
			around{setting: settings()},
			"proc_denied",
			"docker run --security-opt systempaths=unconfined",
		},
		{"processes", forkexec.ProbeUserns, unix.EAGAIN, around{setting: settings()}, CodeLimitReached, processesHint},
	} {
		d := diagnose(tt.step, tt.errno, tt.around)
		switch {
		case d.err == nil || d.err.Code != tt.code || !errors.Is(d.err, tt.errno):
			t.Errorf("%s: %+v", tt.name, d.err)
		case d.remedy.command != tt.fix || !strings.HasSuffix(d.err.Hint, tt.fix):
			t.Errorf("%s: fix %q, hint %q, want %q", tt.name, d.remedy.command, d.err.Hint, tt.fix)
		}
	}
	if d := diagnose(forkexec.ProbeOK, 0, around{setting: settings()}); d.err != nil {
		t.Errorf("all is well, and it says %v", d.err)
	}
}

// Every step that is probed has its row, in that order, and what is missing where one fails is that one and all after it.
func TestNeedsAreTheSteps(t *testing.T) {
	list := needs()
	for i, n := range list {
		if int(n.step) != i+1 {
			t.Errorf("%s is step %d, and stands at %d", n.name, n.step, i+1)
		}
		d := diagnose(n.step, unix.EPERM, around{setting: settings()})
		if len(d.missing) != len(list)-i || d.missing[0] != words(n.name) {
			t.Errorf("%s: missing are %q", n.name, d.missing)
		}
	}
	if last := list[len(list)-1].step; last != forkexec.ProbeNested {
		t.Errorf("the last step is %d", last)
	}
}

func TestNoNextBest(t *testing.T) {
	d := diagnose(forkexec.ProbeProc, unix.EPERM, around{setting: settings()})
	plain := errors.New("something else")
	if got := noNextBest(d.err, false); got.Error() != d.err.Error() {
		t.Errorf("required: %v", got)
	}
	if got := noNextBest(plain, true); !errors.Is(got, plain) || got.Error() != plain.Error() {
		t.Errorf("something else: %v", got)
	}
	got := noNextBest(d.err, true)
	var e *Error
	if !errors.As(got, &e) || e.Code != "proc_denied" || e.Hint != d.err.Hint || !errors.Is(got, unix.EPERM) ||
		!strings.HasSuffix(got.Error(), `; enforce = "best_effort" has no next best for what is missing: proc, nested user namespace`) {
		t.Errorf("best_effort: %v", got)
	}
}
