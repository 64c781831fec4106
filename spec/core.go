package spec

import (
	"fmt"
	"strings"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Handled returns why a crash of a program would start the host's core handler, which runs as root outside and reads the program's
// memory; "" if it would not. With a RLIMIT_CORE of exactly 1 the kernel starts no handler that is a
// program, and with 0 it does (fs/coredump.c, since Linux 2.6.32). It connects to one that is a socket, from Linux
// 6.16 on, whatever the limit.
func (c *Core) Handled() string {
	switch {
	case strings.HasPrefix(c.Pattern, "@"):
		return fmt.Sprintf("kernel.core_pattern is %q: the kernel hands every crash to that socket's service", c.Pattern)
	case strings.HasPrefix(c.Pattern, "|") && c.Fixed:
		return fmt.Sprintf("kernel.core_pattern is %q, and the caller's hard limit of core files is 0: only a limit of 1 keeps the "+
			"kernel from starting that program", c.Pattern)
	}
	return ""
}

// CoreHint is the hint for a hard limit of 0.
const CoreHint = "ulimit -Hc 1 in place of ulimit -c 0, or " + corePatternHint

const corePatternHint = "as root: sysctl kernel.core_pattern=core"

// Hint is what the caller can do.
func (c *Core) Hint() string {
	if strings.HasPrefix(c.Pattern, "@") {
		return corePatternHint
	}
	return CoreHint
}

// cores plans that no crash of a program starts the host's core handler, or adds a Weakness.
func cores(p *policy.Policy, h *Host, plan *Plan) error {
	reason := h.Core.Handled()
	if reason == "" {
		return nil
	}
	if p.Enforce != policy.EnforceBestEffort {
		return fault.New(fault.LimitUnenforceable, h.Core.Hint()+`; or accept it with enforce = "best_effort"`,
			"%s", "a program that crashes would have the host's core handler run: "+reason)
	}
	plan.Exec.CoreHandled = true
	plan.Weaker = append(plan.Weaker, Weakness{What: "core_handler", Reason: reason})
	plan.Warnings = append(plan.Warnings, "a program that crashes has the host's core handler run: "+reason)
	return nil
}
