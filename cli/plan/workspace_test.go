package plan

import (
	"strings"
	"testing"
)

func TestWorkspaceJudgement(t *testing.T) {
	same := func(a, b string) bool { return a == b }
	for _, c := range []struct {
		cwd   string
		homes []string
		write bool
		want  string // the beginning of the verdict
	}{
		{"/work/project", []string{"/home/u", "/home/u"}, true, ""},
		{"/home/u/project", []string{"/home/u", "/home/u"}, true, ""},
		{"/opt/project", []string{"/home/u"}, true, ""},
		{"/tmp/project", []string{"/home/u"}, true, ""},
		{"/var/www/project", []string{"/home/u"}, true, ""},
		{"/usr/src/project", []string{"/root"}, true, ""},
		{"/usr/share/doc", []string{"/home/u"}, false, ""},
		{"/", []string{"/root"}, true, "refuse"},
		{"/", []string{"/"}, true, "refuse"},
		{"/home", []string{"/home/u"}, true, "refuse"},
		{"/home", []string{"/root"}, true, "refuse"},
		{"/data/homes", []string{"/data/homes/staff/u"}, true, "refuse"},
		{"/data", []string{"/data/homes/staff/u"}, true, "refuse"},
		{"/etc", []string{"/root"}, true, "refuse"},
		{"/usr", []string{"/root"}, false, "refuse"},
		{"/var", []string{"/root"}, true, "refuse"},
		{"/root", []string{"/home/u"}, true, "refuse"},
		{"/root", []string{"/root"}, true, "warn"},
		{"/home/u", []string{"/home/u"}, true, "warn"},
		{"/scratch/h", []string{"/home/u", "/scratch/h"}, true, "warn"},
		{"/scratch", []string{"/home/u", "/scratch/h"}, true, "warn"},
		{"/tmp", []string{"/home/u"}, true, "warn"},
		{"/opt", []string{"/home/u"}, true, "warn"},
		{"/etc/nginx", []string{"/root"}, true, "warn"},
		{"/usr/lib/python3", []string{"/root"}, true, "warn"},
	} {
		refusal, warning := directory{cwd: c.cwd, same: same, homes: c.homes, writable: c.write}.judge()
		got := ""
		switch {
		case refusal != "" && warning == "" && strings.Contains(refusal, "cannot be a workspace"):
			got = "refuse"
		case warning != "" && refusal == "":
			got = "warn"
		case refusal != "":
			got = refusal
		}
		if got != c.want {
			t.Errorf("%s with homes %v: got %q (%q, %q), want %q", c.cwd, c.homes, got, refusal, warning, c.want)
		}
	}
}
