package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs"
)

// Answer is what there is to say of one variable or host: whether the program has it, and why.
type Answer struct {
	Asked string   `json:"asked"`
	OK    bool     `json:"ok"`             // it passes; it can be reached
	Is    string   `json:"is"`             // in a few words
	Rule  string   `json:"rule,omitempty"` // the key of the policy that decides, or "default"
	From  string   `json:"from,omitempty"` // where that stands: "task.toml:12:9"
	Why   []string `json:"why"`            // sentences, the most important first
	Hint  string   `json:"hint,omitempty"` // what would let it pass
}

func (a *Answer) say(format string, args ...any) { a.Why = append(a.Why, fmt.Sprintf(format, args...)) }

// at names a rule and where it stands.
func (a *Answer) at() string {
	if a.From == "" || a.From == fromDefault {
		return a.Rule + " (the default)"
	}
	return a.Rule + " at " + a.From
}

// Explainer answers for the paths of a plan. groups are the caller's supplementary groups.
func Explainer(p *Policy, plan *Plan, h *Host, groups []int) *rootfs.Explainer {
	launcher := rootfs.Who{UID: h.UID, GID: h.GID}
	program := launcher
	if plan.Exec.UID != 0 { // 0 is the caller, in the sandbox's user namespace
		program = rootfs.Who{UID: plan.Exec.UID, GID: plan.Exec.GID}
	}
	if !plan.Exec.DropGroups {
		program.Groups = groups
	}
	tool := ""
	if hasConnector(plan.View) {
		tool = ConnectPath
	}
	return &rootfs.Explainer{
		Tool: tool, View: plan.View, Policy: p.Files, Tree: h.Tree, Who: program, Launcher: launcher, OwnID: plan.Exec.OwnID,
		HiddenProc: plan.Exec.Hide, ReadonlyProc: plan.Exec.Readonly,
	}
}

// secretName says whether a variable's value must not be printed: rather one too many.
func secretName(name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc([]string{"KEY", "TOKEN", "SECRET", "PASS", "PWD", "CRED", "AUTH", "COOKIE", "SESSION", "PRIVATE"},
		func(word string) bool { return strings.Contains(name, word) })
}

// ExplainVariable says whether a variable reaches the program, and why. It never tells a value of the caller's. redacted
// says for which names and values env.redact is meant.
func ExplainVariable(p *Policy, plan *Plan, caller map[string]string, name string, redacted func(name, value string) bool) Answer {
	a := Answer{Asked: name, OK: true, Why: []string{}}
	e := &plan.Exec
	theirs, isSet := caller[name]
	set, isFixed := p.Env.Set[name]
	made, isMade := e.Env[name]
	if more, ok := e.EnvSet[name]; ok && !isFixed { // the plan's own, and stronger than the caller's
		made, isMade, isSet = more, true, false
	}
	pattern := matching(e.EnvAllow, name)
	value := theirs
	switch {
	case isFixed:
		a.Is, a.Rule, a.From, value = "set by the policy", "env.set", p.Place("env.set", name), set
		a.say("%s gives it %s", a.at(), told(name, set))
		if isMade || isSet && pattern != "" {
			a.say("that wins over what it would be else")
		}
	case isSet && pattern != "":
		a.Is, a.Rule, a.From = "passes, with the caller's value", "env.allow", p.Place("env.allow", pattern)
		a.say("%s has %q", a.at(), pattern)
	case isMade:
		a.Is, a.Rule, value = "made by sandboxrun", fromDefault, made
		a.say("each program of the sandbox has it, with the value %s", told(name, made))
		if isSet {
			a.say("the caller's own does not pass: no pattern of env.allow names it")
		}
	case pattern != "":
		a.OK, a.Is, a.Rule, a.From = false, "not set", "env.allow", p.Place("env.allow", pattern)
		a.say("%s has %q and would let it pass, but the caller does not have it", a.at(), pattern)
	default:
		a.notPassed(isSet)
	}
	if a.OK && redacted(name, value) {
		a.redaction(p)
	}
	return a
}

// matching is the first pattern that a name matches.
func matching(patterns []string, name string) string {
	for _, p := range patterns {
		if matches(p, name) {
			return p
		}
	}
	return ""
}

func (a *Answer) notPassed(isSet bool) {
	a.OK, a.Is, a.Rule = false, "does not pass", fromDefault
	a.say("nothing of the caller's environment passes that env.allow does not name")
	if isSet {
		a.say("the caller has it")
		a.Hint = fmt.Sprintf("env.allow = [%q]", a.Asked)
		return
	}
	a.say("nor does the caller have it")
	a.Hint = fmt.Sprintf(`env.set = { %s = "..." }`, a.Asked)
}

func told(name, value string) string {
	if secretName(name) {
		return "a value that is not told, since it may be a key"
	}
	return fmt.Sprintf("%q", value)
}

// redaction says what becomes of a key in what is kept: nothing is kept from anywhere yet. See env.redact in table.go.
func (a *Answer) redaction(p *Policy) {
	if p.Env.Redact {
		a.say("its name is that of a key: env.redact puts <NAME> in place of its value in all that is kept")
		return
	}
	a.say("its name is that of a key, and env.redact is off")
}
