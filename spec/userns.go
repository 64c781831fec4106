package spec

import (
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// usernsCost is what processes.userns costs, for the list of weaker protections.
const usernsCost = "the program is root in user namespaces of its own, and so reaches kernel code that the filter refuses otherwise: " +
	"mounts, file systems and the network stack's configuration"

// userns lets the program make user namespaces, if the policy says so and nothing else in the policy is void then.
func userns(p *policy.Policy, id identity, plan *Plan) error {
	if !p.Processes.Userns {
		return nil
	}
	refuse := func(key, why string) error {
		return fault.New(fault.PolicyInvalid, "leave one of the two out", "%s", "processes.userns = true and "+key+" exclude each other: "+why)
	}
	switch {
	case !p.Processes.Spawn:
		return refuse("processes.spawn = false", "a sandbox of the program's own takes a process")
	case !p.Processes.Native:
		return refuse("processes.native = false", "what the program mounts in a namespace of its own is not noexec")
	case len(p.Processes.Execute) > 0:
		return refuse("processes.execute", "Landlock, which holds that list, refuses every mount")
	case p.Processes.Guard != "":
		return refuse(`processes.guard = "`+p.Processes.Guard+`"`, "the guard refuses the processes that a sandbox of the program's own takes")
	case id.shownUID == 0:
		return refuse(`user = "root"`, "the kernel lets a program without capabilities make no user namespace that maps uid 0 of the one around it")
	}
	plan.Exec.Userns = true
	plan.weaken(Weakness{"processes.userns", usernsCost})
	return nil
}
