package plan

import (
	"errors"

	"github.com/sirupsen/logrus"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/version"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/machine"
	"github.com/sandboxrun/sandboxrun/container/made"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Decision is a plan with the policy and the host that it was made from.
type Decision struct {
	Policy *policy.Policy
	Host   *spec.Host
	Plan   *spec.Plan
}

// Decide reads a policy and resolves it on this machine.
func Decide(p *caller.Caller, from Source) (Decision, error) {
	return decide(p, from, machine.Begin().Probe, func(Decision) {})
}

// decide calls known as soon as the policy and the host are.
func decide(
	p *caller.Caller, from Source, probe func(policy.Limits) (*spec.Host, error), known func(Decision),
) (d Decision, err error) {
	if d.Policy, err = Load(p, from); err != nil {
		return d, err
	}
	if from.View != "" {
		kept := spec.Kept{Views: d.Policy.Views}
		v, err := kept.Named(from.View, policy.View{})
		if err != nil {
			return d, err
		}
		d.Policy.Files = v.With(d.Policy.Files)
	}
	if from.Ceiling != nil {
		if err = from.Ceiling.Narrow(d.Policy); err != nil {
			return d, err
		}
	}
	p.Timings.Mark("policy")
	if d.Host, err = probe(d.Policy.Limits); err != nil {
		return d, err
	}
	p.Timings.Mark("look at the machine")
	t := from.Trust
	t.Policy, t.RuntimeDir = d.Policy.Paths, p.Env["XDG_RUNTIME_DIR"]
	if from.Ceiling != nil {
		t.Policy = append(t.Policy, from.Ceiling.Paths()...)
	}
	if err = trust.Add(d.Host, t); err != nil {
		return d, err
	}
	d.Host.Env, d.Host.ExecEnv = p.Env, from.Env
	known(d)
	if d.Plan, err = spec.Resolve(d.Policy, d.Host); err != nil {
		return d, machineFirst(err)
	}
	p.Timings.Mark("plan")
	if from.Ceiling != nil {
		if err = from.Ceiling.Check(d.Plan); err != nil {
			return d, err
		}
	}
	for _, w := range d.Plan.Warnings {
		p.Warn(w)
	}
	return d, nil
}

// machineFirst replaces the error that a program of root would be root to the host, if this machine cannot make any sandbox. Then
// another policy would not help.
func machineFirst(err error) error {
	if code := caller.Describe(err).Code; code != fault.GrantNotIdmapped && code != fault.ProgramIsRoot {
		return err
	}
	if step := diagnose.Machine(); step != nil {
		return step
	}
	return err
}

// begin decides, and meanwhile begins the sandbox. swept is the error of removing the leftovers of dead ones, which stops nothing.
func begin(p *caller.Caller, s *container.Store, from Source, id string) (head *container.HeadStart, d Decision, swept, err error) {
	look := machine.Begin()
	head = s.Begin(id, func() error { // nothing is written into a state directory that programs could write
		h, err := look.Host()
		if err == nil {
			err = s.CheckState(h)
		}
		if err == nil {
			_, swept = s.Sweep()
		}
		return err
	})
	d, err = decide(p, from, look.Probe, func(d Decision) {
		if frame, err := spec.ForeseeFrame(d.Policy, d.Host); err == nil {
			head.Start(frame)
		}
	})
	if err == nil {
		err = head.Reserved()
	}
	if err != nil {
		head.Discard()
	}
	return head, d, swept, err
}

// NewSandbox removes the leftovers of dead sandboxes, then builds a sandbox.
func NewSandbox(p *caller.Caller, s *container.Store, from Source, id string, o container.Options) (*container.Sandbox, *Decision, error) {
	head, d, swept, err := begin(p, s, from, id)
	if err != nil {
		return nil, nil, err
	}
	made, err := d.make(p, s, id)
	if err != nil {
		head.Discard()
		return nil, nil, err
	}
	// A fault of another sandbox must not stop this one.
	if swept != nil && caller.Describe(swept).Code == fault.RecordUnusable {
		p.Warn(swept.Error())
	} else if swept != nil {
		logrus.Warn(swept)
	}
	p.Timings.Mark("sweep")
	if o.Record != "" {
		o.Versions = version.Facts()
	}
	sb, err := head.Create(d.Plan, o)
	if err != nil {
		return nil, nil, errors.Join(err, made.Discard())
	}
	made.Close()
	if made != nil && from.Keep {
		kept, err := made.Keep()
		if err != nil {
			return nil, nil, errors.Join(err, sb.Delete(nil))
		}
		p.Warn("kept on disk, remove it yourself: " + kept)
	}
	for _, w := range sb.State().Warnings[len(d.Plan.Warnings):] { // those found while it was built
		p.Warn(w)
	}
	return sb, &d, nil
}

// make makes what the policy wants on disk, and decides again with that.
func (d *Decision) make(p *caller.Caller, s *container.Store, id string) (*made.Directory, error) {
	made, err := s.Make(id, d.Policy, d.Plan)
	if made == nil || err != nil {
		return nil, err
	}
	for _, w := range made.Warnings {
		p.Warn(w)
	}
	if d.Plan, err = spec.Resolve(d.Policy, d.Host); err != nil {
		return nil, errors.Join(err, made.Discard())
	}
	return made, nil
}

// StaysInPlace reports whether a program starts in its caller's directory, if the view has that.
func (d *Decision) StaysInPlace(p *caller.Caller) bool {
	return p.CwdErr == nil && d.Policy.StaysInPlace()
}
