package spec

import (
	"maps"
	"sort"
	"strings"
)

// Environ is the environment of a program. Later sources override earlier ones: the variables of every program, those that the
// policy takes from the caller, those that it sets, and those of this exec.
func (e *Exec) Environ(caller, extra map[string]string) []string {
	env := e.Passed(caller, extra)
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	sort.Strings(list)
	return list
}

// Passed is Environ as a map.
func (e *Exec) Passed(caller, extra map[string]string) map[string]string {
	env := map[string]string{}
	maps.Copy(env, e.Env)
	for k, v := range caller {
		if allowed(e.EnvAllow, k) && !allowed(e.EnvDeny, k) {
			env[k] = v
		}
	}
	for _, more := range []map[string]string{e.EnvSet, extra} {
		maps.Copy(env, more)
	}
	return env
}

// allowed reports whether a variable's name matches one of the patterns, in which "*" stands for any characters.
func allowed(patterns []string, name string) bool {
	for _, p := range patterns {
		if matches(p, name) {
			return true
		}
	}
	return false
}

// VariableMatches reports whether a name matches a pattern of env.allow. A pattern that matches another one matches all that it does.
func VariableMatches(pattern, name string) bool { return matches(pattern, name) }

func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return pattern == name
	}
	if !strings.HasPrefix(name, first) || len(name) < len(first)+len(last) || !strings.HasSuffix(name, last) {
		return false
	}
	name = name[len(first) : len(name)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
	return true
}

// Passes returns the pattern of env.allow that lets a variable pass, or else that of env.deny which keeps it from passing.
func (e *Exec) Passes(name string) (pattern, denied string) {
	pattern = matching(e.EnvAllow, name)
	if pattern == "" {
		return "", ""
	}
	if denied = matching(e.EnvDeny, name); denied != "" {
		return "", denied
	}
	return pattern, ""
}

// matching returns the first pattern that a name matches, or "".
func matching(patterns []string, name string) string {
	for _, p := range patterns {
		if matches(p, name) {
			return p
		}
	}
	return ""
}
