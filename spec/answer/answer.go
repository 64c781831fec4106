// Package answer says why a program has a variable, or reaches a host, and which rule of the policy decides. Paths and programs are
// explained by rootfs/explain. It imports of ours spec, policy, rootfs, netpolicy and secret.
package answer

import (
	"fmt"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/secret"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Answer is the explanation of one variable or host: whether the program has or reaches it, and why.
type Answer struct {
	Asked string   `json:"asked"`
	OK    bool     `json:"ok"`             // the variable passes; the host can be reached
	Is    string   `json:"is"`             // in a few words
	Rule  string   `json:"rule,omitempty"` // the key of the policy that decides, or "default"
	From  string   `json:"from,omitempty"` // the place of the rule: "task.toml:12:9"
	Why   []string `json:"why"`            // sentences, the most important first
	Hint  string   `json:"hint,omitempty"` // the change of the policy that would allow it
}

func (a *Answer) say(format string, args ...any) { a.Why = append(a.Why, fmt.Sprintf(format, args...)) }

// at names the rule and its place.
func (a *Answer) at() string {
	if a.From == "" || a.From == rootfs.FromDefault {
		return a.Rule + " (the default)"
	}
	return a.Rule + " at " + a.From
}

// Variable explains whether a variable reaches the program. It never prints the value of what may be a key.
func Variable(p *policy.Policy, plan *spec.Plan, caller map[string]string, name string) Answer {
	a := Answer{Asked: name, OK: true, Why: []string{}}
	e := &plan.Exec
	theirs, isSet := caller[name]
	set, isFixed := p.Env.Set[name]
	made, isMade := e.Env[name]
	if more, ok := e.EnvSet[name]; ok && !isFixed { // the plan sets it, which overrides the caller's value
		made, isMade, isSet = more, true, false
	}
	pattern, denied := e.Passes(name)
	value := theirs
	switch {
	case isFixed:
		a.Is, a.Rule, a.From, value = "set by the policy", "env.set", p.Place("env.set", name), set
		a.say("%s gives it %s", a.at(), printableValue(name, set))
		if isMade || isSet && pattern != "" {
			a.say("this overrides every other value")
		}
	case isSet && pattern != "":
		a.Is, a.Rule, a.From = "passes, with the caller's value", "env.allow", p.Place("env.allow", pattern)
		a.say("%s has %q", a.at(), pattern)
	case isMade:
		a.Is, a.Rule, value = "made by sandboxrun", rootfs.FromDefault, made
		a.say("each program of the sandbox has it, with the value %s", printableValue(name, made))
		switch {
		case isSet && denied != "":
			a.say("the caller's value does not pass: env.deny has %q", denied)
		case isSet:
			a.say("the caller's value does not pass: no pattern of env.allow matches")
		}
	case denied != "":
		a.OK, a.Is, a.Rule, a.From = false, "does not pass", "env.deny", p.Place("env.deny", denied)
		a.say("%s has %q, which takes it out of env.allow", a.at(), denied)
	case pattern != "":
		a.OK, a.Is, a.Rule, a.From = false, "not set", "env.allow", p.Place("env.allow", pattern)
		a.say("%s has %q and would let it pass, but the caller does not have it", a.at(), pattern)
	default:
		a.notPassed(isSet)
	}
	if a.OK && secret.Redacted(name, value) {
		a.redaction(p)
	}
	return a
}

func (a *Answer) notPassed(isSet bool) {
	a.OK, a.Is, a.Rule = false, "does not pass", rootfs.FromDefault
	a.say("a variable of the caller passes only if env.allow names it")
	if isSet {
		a.say("the caller has it")
		a.Hint = fmt.Sprintf("env.allow = [%q]", a.Asked)
		return
	}
	a.say("nor does the caller have it")
	a.Hint = fmt.Sprintf(`env.set = { %s = "..." }`, a.Asked)
}

// printableValue is a value in quotes, or a substitute for the value of a variable that may be a key.
func printableValue(name, value string) string {
	if secret.Variable(name) {
		return "a value that is not printed, because it may be a key"
	}
	return fmt.Sprintf("%q", value)
}

// redaction explains what env.redact does with a key in stored output: package record replaces its value.
func (a *Answer) redaction(p *policy.Policy) {
	if p.Env.Redact {
		a.say("its name is that of a key: env.redact replaces its value by <NAME> in stored output")
		return
	}
	a.say("its name is that of a key, and env.redact is off")
}
