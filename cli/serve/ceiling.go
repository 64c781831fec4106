package serve

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/sandboxrun/sandboxrun/ceiling"
	"github.com/sandboxrun/sandboxrun/cli/plan"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rpc"
)

// With a ceiling the clients are programs that nobody has read. Their policies are held below it (package ceiling). What a request says beside a
// policy is about what is theirs, or refused.

// openCeiling reads the policy that no client goes beyond.
func (s *server) openCeiling(name string) error {
	if name == "" || name == "-" {
		return fault.Usage("--ceiling: name a policy's file, or a preset", "sandboxrun policy presets")
	}
	d, err := plan.Decide(s.Caller, plan.Source{Name: name, Trust: trust.Known{State: s.state}})
	if err != nil {
		return err
	}
	s.ceiling, err = ceiling.New(d.Policy, d.Plan, d.Host.Tree)
	return err
}

// theirs are the methods, with their parameters, that are about what a client has itself. Any other is about the host, or new, and refused
// where there is a ceiling.
func theirs() map[string][]string {
	return map[string][]string{
		"create": {"policy", "policy_text", "read", "write", "bind", "deny", "allow_host", "cwd", "warm"},
		"exec": {
			"sandbox", "argv", "cwd", "env", "timeout", "memory", "pids", "put", "fresh", "collect", "answer", "on_output_limit", "translate", "stdin", "stdin_base64",
			"stdin_open", "stream", "tty", "warm",
		},
		"exec/stdin": {"id", "data", "base64", "eof"}, "exec/resize": {"id", "rows", "cols"}, "cancel": {"id"},
		"put": {"sandbox", "cwd", "files"}, "get": {"sandbox", "cwd", "path", "max"}, "path": {"sandbox", "host", "inside"},
		"delete": {"sandbox"}, "list": {},
	}
}

// admits refuses a request that is not about what the client has itself, where there is a ceiling.
func (s *server) admits(r *rpc.Request) error {
	if s.ceiling == nil {
		return nil
	}
	known, ok := theirs()[r.Method]
	if !ok {
		return s.ofHost(r.Method, "")
	}
	var given map[string]json.RawMessage
	if len(r.Params) > 0 {
		if err := json.Unmarshal(r.Params, &given); err != nil {
			return badParams("parameters of %s: %v", r.Method, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(known, name) {
			return s.ofHost(r.Method+": "+name, "leave it out")
		}
	}
	return nil
}

// ofHost refuses a part of a request that is about the host, where there is a ceiling.
func (s *server) ofHost(what, instead string) error {
	if s.ceiling == nil {
		return nil
	}
	return fault.New(fault.BeyondCeiling, instead, "%s: this server has a ceiling, and its clients have nothing of the host but what their policies may show", what)
}

// take gives a client one of the server's sandboxes. drop gives it back.
func (s *server) take() error {
	select {
	case s.slots <- struct{}{}:
		return nil
	default:
		return fault.New(fault.LimitReached, "delete one; serve --sandboxes", "the server's clients have %d sandboxes already", cap(s.slots))
	}
}

func (s *server) drop() { <-s.slots }
