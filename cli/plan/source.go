package plan

import (
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/ceiling"
	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/fault"
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
	Keep    bool   // what is made on disk stays when the sandbox has ended
	View    string // of the policy, whose files are to be seen as the sandbox's
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

// ViewFlags are the flags of an exec for what it alone sees.
func (g *Grants) ViewFlags() []cli.Flag {
	usage := map[string]string{
		"read": "show `PATH` to this program alone, read-only; can be repeated",
		"bind": "show SOURCE at TARGET to this program alone, read-only: `SOURCE:TARGET`; can be repeated",
		"deny": "hide `PATH` from this program alone; can be repeated",
	}
	var flags []cli.Flag
	for _, name := range []string{"read", "bind", "deny"} {
		flags = append(flags, &cli.GenericFlag{Name: name, Value: &grantFlag{name, g}, Usage: usage[name]})
	}
	return flags
}

// View reads these flags, and adds the view of that name of the policy.
func (g Grants) View(p *caller.Caller, name string) (v container.View, err error) {
	v.Name = name
	if len(g) == 0 {
		return v, nil
	}
	if p.CwdErr != nil {
		return v, fault.Usage(p.NoCwd()+", so --"+g[0].Name+" has nothing to be relative to", "change to another directory")
	}
	v.View, err = policy.ViewOf(policy.Input{Cwd: p.Cwd, Home: p.Env["HOME"], Env: p.Env, Flags: g})
	return v, err
}

// TakeHostCwd takes an absolute --cwd out: with --translate it is a directory of the host, which has its name inside only when the view
// is known.
func (g *Grants) TakeHostCwd() string {
	dir := ""
	*g = slices.DeleteFunc(*g, func(f policy.Flag) bool {
		host := f.Name == "cwd" && filepath.IsAbs(f.Value)
		if host {
			dir = f.Value
		}
		return host
	})
	return dir
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
