package plan

import (
	"os"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/version"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/machine"
	"github.com/sandboxrun/sandboxrun/container/made"
	"github.com/sandboxrun/sandboxrun/container/pool"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Pool is what a pool of sandboxes of a policy is made with. It decides again and again what NewSandbox decides once.
func Pool(p *caller.Caller, store *container.Store, from Source, size int) pool.Config {
	config := pool.Config{
		Store: store, Size: size, Policy: from.Name, Dir: p.Cwd, Versions: version.Facts(), Trouble: func(err error) { logrus.Warn(err) },
	}
	if _, preset := policy.Preset(from.Name); !preset && from.Name != "" {
		config.Policy, _ = filepath.Abs(from.Name) // without a current directory the policy cannot be read either
	}
	quiet := *p
	quiet.Warnings = new([]string) // who gets a sandbox prints them
	config.Decide = func() (*pool.Decision, error) {
		*quiet.Warnings = nil
		d, err := decideTraced(&quiet, from)
		if err != nil {
			return nil, err
		}
		if made.Makes(d.Policy) {
			return nil, fault.Usage("a pool makes no workspace of source = \"disk\", and no copies", "leave them out, or use no pool")
		}
		if err := store.CheckState(d.Host); err != nil {
			return nil, err
		}
		if _, err := store.Sweep(); err != nil {
			logrus.Warn(err)
		}
		return d, nil
	}
	return config
}

// decideTraced is Decide, with all that the plan depends on.
func decideTraced(p *caller.Caller, from Source) (*pool.Decision, error) {
	var trace *hostfs.Trace
	d, err := decide(p, from, func(l policy.Limits) (h *spec.Host, err error) {
		h, trace, err = machine.ProbeTraced(l)
		return h, err
	}, func(Decision) {})
	if err != nil {
		return nil, err
	}
	uid := os.Geteuid()
	trusted := []string{from.Trust.State, trust.StatePath("", "", uid), trust.StatePath("", p.Env["XDG_RUNTIME_DIR"], uid)}
	return &pool.Decision{Policy: d.Policy, Host: d.Host, Plan: d.Plan, Trace: trace, Env: p.Env, Trusted: trusted}, nil
}

// FromPool claims a sandbox of the pool that the command runs in, if there is one that is as NewSandbox would make it, and says in which
// directory a run starts, if that is the caller's. Else it returns nil.
func FromPool(p *caller.Caller, s *container.Store, from Source, id string, o container.Options) (*container.Sandbox, string) {
	name := p.Env[pool.Variable]
	if name == "" || len(from.Grants) > 0 || from.Keep || from.Name == "-" || from.Trust.Key != "" {
		return nil, ""
	}
	sb, dir, err := pool.Claim(s, name, pool.Want{
		ID: id, Run: o.Once, Policy: from.Name, Owner: o.Owner, Record: o.Record, Env: len(from.Env) > 0,
	})
	if err != nil {
		logrus.Info("not from the pool: ", err)
		return nil, ""
	}
	for _, w := range sb.State().Warnings {
		p.Warn(w)
	}
	return sb, dir
}
