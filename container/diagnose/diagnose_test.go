package diagnose

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/fault"
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
		around Around
		code   string
		fix    string
	}{
		{
			"none allowed", forkexec.ProbeUserns, unix.ENOSPC,
			Around{UID: 1000, Setting: settings("user/max_user_namespaces", "0")},
			"userns_denied", "sudo sysctl -w user.max_user_namespaces=10000",
		},
		{
			"none left", forkexec.ProbeUserns, unix.ENOSPC,
			Around{UID: 0, Setting: settings("user/max_user_namespaces", "5")},
			"userns_denied", "sysctl -w user.max_user_namespaces=10000",
		},
		{
			"Debian", forkexec.ProbeUserns, unix.EPERM,
			Around{UID: 1000, Setting: settings("kernel/unprivileged_userns_clone", "0")},
			"userns_denied", "sudo sysctl -w kernel.unprivileged_userns_clone=1",
		},
		{"Ubuntu 24.04", forkexec.ProbeMap, unix.EPERM, Around{UID: 1000, Setting: settings(restrict, "1")}, "userns_denied", appArmor},
		{"Ubuntu 23.10", forkexec.ProbeUserns, unix.EACCES, Around{UID: 1000, Setting: settings(restrict, "1")}, "userns_denied", appArmor},
		{
			"Docker", forkexec.ProbeUserns, unix.EPERM, Around{UID: 1000, Filter: true, Setting: settings()}, "userns_denied", OuterOptions,
		},
		{
			"Docker on Ubuntu", forkexec.ProbeUserns, unix.EPERM,
			Around{UID: 0, Filter: true, Setting: settings(restrict, "1")},
			"userns_denied", OuterOptions,
		},
		{
			"a program with a filter on Ubuntu", forkexec.ProbeMap, unix.EPERM,
			Around{UID: 1000, Filter: true, Setting: settings(restrict, "1")},
			"userns_denied", appArmor,
		},
		{
			"docker-default", forkexec.ProbeMount, unix.EACCES,
			Around{Profile: "docker-default (enforce)", Setting: settings()},
			"mount_denied", OuterOptions,
		},
		{"a module", forkexec.ProbeUserns, unix.EPERM, Around{UID: 7, Setting: settings()}, "userns_denied", "sudo dmesg"},
		{"no /proc", forkexec.ProbeMap, unix.ENOENT, Around{Setting: settings()}, "userns_denied", "mount -t proc proc /proc"},
		{"old kernel", forkexec.ProbeAttr, unix.ENOSYS, Around{Setting: settings()}, "mount_denied", NewerKernel},
		{"networks", forkexec.ProbeNetwork, unix.ENOSPC, Around{Setting: settings()}, "netns_denied", "sysctl -w user.max_net_namespaces=10000"},
		{
			"covered", forkexec.ProbeProc, unix.EPERM,
			Around{Setting: settings()},
			"proc_denied",
			"docker run --security-opt systempaths=unconfined",
		},
		{"processes", forkexec.ProbeUserns, unix.EAGAIN, Around{Setting: settings()}, fault.LimitReached, ProcessesHint},
	} {
		d := Step(tt.step, tt.errno, tt.around)
		switch {
		case d.Err == nil || d.Err.Code != tt.code || !errors.Is(d.Err, tt.errno):
			t.Errorf("%s: %+v", tt.name, d.Err)
		case d.Remedy.Command != tt.fix || !strings.HasSuffix(d.Err.Hint, tt.fix):
			t.Errorf("%s: fix %q, hint %q, want %q", tt.name, d.Remedy.Command, d.Err.Hint, tt.fix)
		}
	}
	if d := Step(forkexec.ProbeOK, 0, Around{Setting: settings()}); d.Err != nil {
		t.Errorf("all is well, and it says %v", d.Err)
	}
}

// Every step that is probed has its row, in that order, and what is missing where one fails is that one and all after it.
func TestNeedsAreTheSteps(t *testing.T) {
	list := Needs()
	for i, n := range list {
		if int(n.Step) != i+1 {
			t.Errorf("%s is step %d, and stands at %d", n.Name, n.Step, i+1)
		}
		d := Step(n.Step, unix.EPERM, Around{Setting: settings()})
		if len(d.Missing) != len(list)-i || d.Missing[0] != words(n.Name) {
			t.Errorf("%s: missing are %q", n.Name, d.Missing)
		}
	}
	if last := list[len(list)-1].Step; last != forkexec.ProbeNested {
		t.Errorf("the last step is %d", last)
	}
}

func TestNoNextBest(t *testing.T) {
	d := Step(forkexec.ProbeProc, unix.EPERM, Around{Setting: settings()})
	plain := errors.New("something else")
	if got := NoNextBest(d.Err, false); got.Error() != d.Err.Error() {
		t.Errorf("required: %v", got)
	}
	if got := NoNextBest(plain, true); !errors.Is(got, plain) || got.Error() != plain.Error() {
		t.Errorf("something else: %v", got)
	}
	got := NoNextBest(d.Err, true)
	var e *fault.Error
	if !errors.As(got, &e) || e.Code != "proc_denied" || e.Hint != d.Err.Hint || !errors.Is(got, unix.EPERM) ||
		!strings.HasSuffix(got.Error(), `; enforce = "best_effort" has no next best for what is missing: proc, nested user namespace`) {
		t.Errorf("best_effort: %v", got)
	}
}
