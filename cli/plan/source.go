package plan

import (
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/ceiling"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Source says which policy is meant, and what it is for.
type Source struct {
	Name      string            // of --policy: a file, a preset, or "-"; "": the preset default
	Inline    []byte            // the policy itself, in place of Name
	Workspace bool              // without a policy the current directory is the writable workspace
	Grants    Grants            // what the command line adds to it
	Env       map[string]string // variables of the exec; see spec.Host.ExecEnv
	Trust     trust.Known
	// Ceiling, if it is set, says that the policy is of somebody whom nobody trusts: it is held below, reads no file and no variable, and is
	// a preset where it has a name.
	Ceiling *ceiling.Ceiling
}

// Grants are what the flags of a command line add to a policy, in their order.
type Grants []policy.Flag

// Flags are the flags that add to a policy.
func (g *Grants) Flags() []cli.Flag {
	usage := map[string]string{
		"read":       "show `PATH` read-only: adds to files.read; can be repeated",
		"write":      "let the program write `PATH`: adds to files.write; can be repeated",
		"bind":       "show SOURCE at TARGET: `SOURCE:TARGET[:rw]` adds to bind; can be repeated",
		"deny":       "hide `PATH` in spite of every grant: adds to files.deny; can be repeated",
		"allow-host": "let the program reach `HOST[:PORT]`: adds to network.allowed_hosts; can be repeated",
		"cwd":        "start in `DIR` inside (default: the policy's workdir)",
	}
	var flags []cli.Flag
	for _, name := range policy.FlagNames() {
		flags = append(flags, &cli.GenericFlag{Name: name, Value: &grantFlag{name, g}, Usage: usage[name]})
	}
	return flags
}

// grantFlag adds to the policy each time that it occurs.
type grantFlag struct {
	name string
	list *Grants
}

// Set adds a value to the list.
func (f *grantFlag) Set(value string) error {
	if value != flags.Again {
		*f.list = append(*f.list, policy.Flag{Name: f.name, Value: value})
	}
	return nil
}

// String is for the library, which copies values through it.
func (f *grantFlag) String() string {
	if f.list == nil || !slices.ContainsFunc(*f.list, func(g policy.Flag) bool { return g.Name == f.name }) {
		return ""
	}
	return flags.Again
}
