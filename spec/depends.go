package spec

import (
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// DependsOn reports whether a plan of the policy can be another one where a variable of the caller has another value. What a program is
// given of the caller's variables is decided at each exec, and is not meant.
func DependsOn(p *policy.Policy, name string) bool {
	switch {
	case name == "HOME", name == "XDG_RUNTIME_DIR", slices.Contains(p.Expanded, name):
		return true
	case len(p.Interpreters.Show)+len(p.Interpreters.Packages) > 0 && slices.Contains([]string{"PATH", "PYENV_VERSION", "PYTHONPATH"}, name):
		return true
	case p.Network.Mode == netpolicy.Host:
		return false
	case proxied(p.Network.Mode) && strings.HasSuffix(strings.ToLower(name), "_proxy"):
		return true
	}
	// An address in a variable that passes is forwarded, and the relay's own secrets are taken out of it.
	return (p.Network.EnvURLs || proxied(p.Network.Mode)) && allowed(p.Env.Allow, name) && !allowed(p.Env.Deny, name)
}
