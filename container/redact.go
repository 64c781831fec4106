package container

import (
	"strings"

	"github.com/sandboxrun/sandboxrun/record"
)

// What is kept of an exec has no value of a key-like variable in it, where the policy says so (env.redact): the output in
// results, logs and files, the events, warnings and errors. What goes straight to a writer of the caller's is as the program
// wrote it.

// environ is what the program of an exec has, and what redacts the values of that and of the caller's own variables: a program may have
// read one elsewhere. It is nil where nothing is to be redacted.
func (sb *Sandbox) environ(req Request) ([]string, *record.Redactor) {
	e := &sb.state.Launch
	passed := req.Caller
	if req.passed != nil {
		passed = req.passed
	}
	env := e.Environ(passed, req.Env)
	if req.Tty != nil && variable(env, "TERM") == "" {
		env = append(env, "TERM=xterm")
	}
	if req.Answer {
		env = append(env, "SANDBOXRUN_RESULT="+answerFD)
	}
	if !e.Redact {
		return env, nil
	}
	own := make(map[string]string, len(env))
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		own[name] = value
	}
	return env, record.NewRedactor(own, req.Caller)
}

func variable(env []string, name string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}
