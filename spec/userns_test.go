package spec

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandboxrun/sandboxrun/fault"
)

// TestUserns: what excludes processes.userns, and what it is listed as.
func TestUserns(t *testing.T) {
	const on = "version = 1\n[processes]\nuserns = true\n"
	for _, c := range []struct{ policy, code, says string }{
		{on + "spawn = false", fault.PolicyInvalid, "processes.spawn = false"},
		{on + "native = false", fault.PolicyInvalid, "processes.native = false"},
		{on + "guard = 'python'", fault.PolicyInvalid, "processes.guard"},
		{"user = 'root'\n" + on, fault.PolicyInvalid, `user = "root"`},
		{on + "[limits]\nmemory = '64M'", fault.LimitUnenforceable, "namespaces of its own"},
	} {
		var e *fault.Error
		if _, err := resolve(t, c.policy, nil); !errors.As(err, &e) || e.Code != c.code || !strings.Contains(e.Error(), c.says) {
			t.Errorf("%q: %v", c.policy, err)
		}
	}
	for policy, weaker := range map[string][]string{
		on: {"processes.userns"}, "enforce = 'best_effort'\n" + on + "[limits]\nmemory = '64M'": {"limits.memory", "processes.userns"}, "version = 1": nil,
	} {
		plan, err := resolve(t, policy, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range plan.Weaker {
			got = append(got, w.What)
		}
		if strings.Join(got, " ") != strings.Join(weaker, " ") || plan.Exec.Userns != strings.Contains(policy, "userns") || plan.Checks.Userns != plan.Exec.Userns {
			t.Errorf("%q: weaker %q, want %q; %v", policy, got, weaker, plan.Exec.Userns)
		}
	}
	if plan, err := resolve(t, "user = 4711\n"+on+"[limits]\nmemory = '64M'", withCgroup1); err != nil || len(plan.Weaker) != 1 {
		t.Errorf("memory that a cgroup counts: %v", err)
	}
}
