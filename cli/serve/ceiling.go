package serve

import (
	"github.com/sandboxrun/sandboxrun/ceiling"
	"github.com/sandboxrun/sandboxrun/cli/policy"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/fault"
)

// With a ceiling the clients are programs that nobody has read. Their policies are held below it (package ceiling). What a request says beside a
// policy is theirs, what is in a sandbox of theirs, or a path or fact of the host, and refused.

// openCeiling reads the policy that no client goes beyond.
func (s *server) openCeiling(name string) error {
	if name == "" || name == "-" {
		return fault.Usage("--ceiling: name a policy's file, or a preset", "sandboxrun policy presets")
	}
	d, err := policy.Decide(s.Caller, policy.Source{Name: name, Trust: trust.Known{State: s.state}})
	if err != nil {
		return err
	}
	s.ceiling, err = ceiling.New(d.Policy, d.Plan, d.Host.Tree)
	return err
}

// ofHost refuses a part of a request that is about the host, where there is a ceiling.
func (s *server) ofHost(what string, asked bool, instead string) error {
	if s.ceiling == nil || !asked {
		return nil
	}
	return fault.New(ceiling.Code, instead, "%s: this server has a ceiling, and its clients have nothing of the host but what their policies may show", what)
}

// take gives a client one of the server's sandboxes. drop gives it back.
func (s *server) take() error {
	select {
	case s.slots <- struct{}{}:
		return nil
	default:
		return fault.New("limit_reached", "delete one; serve --sandboxes", "the server's clients have %d sandboxes already", cap(s.slots))
	}
}

func (s *server) drop() { <-s.slots }
