package spec

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/fault"
)

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
