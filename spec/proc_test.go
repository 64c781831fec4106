package spec

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// TestShowsProcfs: a view without /proc shows no procfs that the host has mounted elsewhere either.
func TestShowsProcfs(t *testing.T) {
	mounts := []hostfs.Mount{
		{Target: "/", Kind: "ext4"},
		{Target: "/proc", Kind: "proc"},
		{Target: "/ch/proc", Kind: "proc"},
		{Target: "/ch/old", Kind: "proc"},
		{Target: "/ch/old", Kind: "tmpfs"},
		{Target: "/ch/proc/in", Kind: "tmpfs"},
	}
	bind := func(source, target string) rootfs.Mount {
		return rootfs.Mount{Kind: rootfs.MountBind, Source: source, Target: target, Dir: true, From: "here"}
	}
	mask := func(target string) rootfs.Mount { return rootfs.Mount{Kind: rootfs.MountMask, Target: target} }
	for what, c := range map[string]struct {
		mounts []rootfs.Mount
		at     string
	}{
		"around it":               {[]rootfs.Mount{bind("/ch", "/w")}, "/ch/proc"},
		"itself":                  {[]rootfs.Mount{bind("/ch/proc", "/w")}, "/ch/proc"},
		"in it":                   {[]rootfs.Mount{bind("/ch/proc/self", "/w")}, "/ch/proc"},
		"masked":                  {[]rootfs.Mount{bind("/ch", "/w"), mask("/w/proc"), mask("/w/old")}, ""},
		"masked above":            {[]rootfs.Mount{bind("/ch", "/w/ch"), mask("/w/ch")}, ""},
		"another mount":           {[]rootfs.Mount{bind("/ch/proc/in", "/w")}, ""},
		"one on it":               {[]rootfs.Mount{bind("/ch/old", "/w")}, ""},
		"something else":          {[]rootfs.Mount{bind("/home", "/w")}, ""},
		"the sandbox's own /proc": {[]rootfs.Mount{bind("/", "/"), mask("/ch")}, ""},
		"pinned":                  {[]rootfs.Mount{{Kind: rootfs.MountBind, Source: "/ch", Target: "/ch", Pin: true}}, ""},
	} {
		err := showsProcfs(&rootfs.View{Mounts: c.mounts}, mounts)
		if (err == nil) != (c.at == "") || err != nil && !strings.Contains(err.Error(), `mounted at "`+c.at+`"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestNoProc: what excludes processes.proc = false. Both keys are named.
func TestNoProc(t *testing.T) {
	const off = "version = 1\nprocesses.proc = false\n"
	for more, says := range map[string]string{
		"processes.userns = true":                                            "processes.userns = true",
		"files.read = ['/proc/cpuinfo']":                                     `p.toml:3:15: files.read "/proc/cpuinfo"`,
		"files.write = ['/proc/self']":                                       "files.write",
		"files.tmpfs = [{ path = '/proc/x' }]":                               "files.tmpfs",
		"workdir = '/proc/self/cwd'":                                         "workdir",
		"processes.execute = ['/proc/self/exe']":                             "processes.execute",
		"[[bind]]\nsource = '/proc/version'\ntarget = '/w/version'":          `bind "/proc/version"`,
		"[[bind]]\nsource = '/usr'\ntarget = '/proc/usr'":                    `bind "/proc/usr"`,
		"[workspace]\nsource = 'tmpfs'\npath = '/proc/w'":                    `workspace.source "/proc/w"`,
		"[workspace]\nsource = '/proc/self/cwd'\npath = '/w'":                `workspace.source "/proc/self/cwd"`,
		"[views.v]\nread = ['/proc/cpuinfo']":                                "views.v.read",
		"[views.v]\nbind = [{ source = '/usr', target = '/proc/self/usr' }]": "views.v.bind",
	} {
		_, err := resolve(t, off+more, nil)
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != fault.PolicyInvalid || !strings.Contains(e.Error(), says) || !strings.Contains(e.Error(), "processes.proc = false") || e.Hint == "" {
			t.Errorf("%q: %v", more, err)
		}
	}
	for more, none := range map[string]bool{"": true, "files.deny = ['/home/ada/work']\n": true, "processes.proc = true": false} {
		text := "version = 1\n" + more
		if none {
			text = off + more
		}
		plan, err := resolve(t, text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Exec.NoProc != none || plan.Checks.NoProc != none || len(plan.Weaker) > 0 {
			t.Errorf("%q: %v %v %v", text, plan.Exec.NoProc, plan.Checks.NoProc, plan.Weaker)
		}
	}
}
