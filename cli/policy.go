package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/diagnose"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/spec"
)

func policyFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "policy", Aliases: []string{"p"},
		Usage: "use the policy `FILE` (TOML or JSON, - for standard input), or the preset of that name",
	}
}

// loadPolicy reads the policy that --policy names. Without --policy it is the preset default, with the current directory as the
// writable workspace if workspace is set.
func (p *program) loadPolicy(name string, workspace bool) (*spec.Policy, error) {
	in := spec.Input{Env: p.env, Home: p.env["HOME"], ReadFile: readFile, Cwd: p.cwd, Flags: p.grants}
	if p.cwdErr != nil && len(in.Flags) > 0 {
		return nil, &usage{
			"the current directory no longer exists, so --" + in.Flags[0].Name + " has nothing to be relative to",
			"change to another directory, or give a policy with --policy",
		}
	}
	switch {
	case name == "" && workspace && p.inline == nil:
		if p.cwdErr != nil {
			return nil, &usage{
				"the current directory no longer exists",
				"change to another directory, or give a policy with --policy",
			}
		}
		if err := p.checkWorkspace(); err != nil {
			return nil, err
		}
		def := spec.DefaultPolicy(p.cwd)
		def.Env, def.Home, def.Cwd, def.Flags = in.Env, in.Home, in.Cwd, in.Flags
		policy, err := spec.Load(def)
		if err == nil {
			policy.Files.Workspace.From = "the current directory: workspace" // no file has this key
		}
		return policy, err
	case name == "":
		name = "default"
	}
	if p.inline != nil {
		in.Name, in.Data = "the request", p.inline
		return spec.Load(in)
	}
	if err := readPolicy(&in, name, p.in); err != nil {
		return nil, err
	}
	return spec.Load(in)
}

func readPolicy(in *spec.Input, name string, stdin io.Reader) error {
	if name == "-" {
		data, err := io.ReadAll(stdin)
		in.Name, in.Data = "standard input", data
		if err != nil {
			return fmt.Errorf("read policy from standard input: %w", err)
		}
		return nil
	}
	// As for extends, the name of a preset is the preset and not a file, because a program that may write in the current
	// directory could make a file of that name.
	if preset, ok := spec.Preset(name); ok {
		in.Name, in.Data, in.Dir = "preset "+name, preset, "/"
		return nil
	}
	data, err := readFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return &usage{fmt.Sprintf("there is no policy file or preset %q", name), "sandboxrun policy presets"}
	}
	if err != nil {
		return fmt.Errorf("read policy: %w", err)
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return fmt.Errorf("read policy: %w", err)
	}
	in.Name, in.Data, in.Dir, in.Path = name, data, filepath.Dir(abs), abs
	if ownDescriptor(name) {
		in.Path, _ = filepath.EvalSymlinks(name) // a pipe has no path
	}
	return nil
}

// plan reads a policy and resolves it.
func (p *program) plan(name string, workspace bool, env map[string]string, t trust.Known) (*spec.Plan, error) {
	d, err := p.decide(name, workspace, env, t)
	return d.plan, err
}

// decision is a plan with the policy and the host that it was made from.
type decision struct {
	policy *spec.Policy
	host   *spec.Host
	plan   *spec.Plan
}

func (p *program) decide(name string, workspace bool, env map[string]string, t trust.Known) (decision, error) {
	policy, err := p.loadPolicy(name, workspace)
	if err != nil {
		return decision{}, err
	}
	host, err := container.Probe(policy.Limits)
	if err != nil {
		return decision{}, err
	}
	return p.resolve(policy, host, env, t)
}

func (p *program) resolve(policy *spec.Policy, host *spec.Host, env map[string]string, t trust.Known) (d decision, err error) {
	d.policy, d.host = policy, host
	t.Policy, t.RuntimeDir = d.policy.Paths, p.env["XDG_RUNTIME_DIR"]
	if err = trust.Add(d.host, t); err != nil {
		return d, err
	}
	d.host.Env, d.host.ExecEnv = p.env, env
	if d.plan, err = spec.Resolve(d.policy, d.host); err != nil {
		return d, machineFirst(err)
	}
	for _, w := range d.plan.Warnings {
		p.warn(w)
	}
	return d, nil
}

// machineFirst replaces the error that a program of root would be root to the host, if this machine cannot make any sandbox. Then
// another policy would not help.
func machineFirst(err error) error {
	if code := describe(err).code; code != spec.CodeNotIdmapped && code != spec.CodeProgramIsRoot {
		return err
	}
	if step := diagnose.Machine(); step != nil {
		return step
	}
	return err
}

func (p *program) policyCommand() *cli.Command {
	return &cli.Command{
		Name: "policy", Usage: "check a policy, or print the schema or the presets",
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return cli.ShowSubcommandHelp(c)
			}
			return unknownCommand(c.Command.Subcommands, "policy ", c.Args().First())
		},
		Subcommands: []*cli.Command{
			{
				Name: "check", Usage: "say whether a policy is valid on this machine", ArgsUsage: "FILE",
				Action: func(c *cli.Context) error {
					if c.NArg() != 1 {
						return &usage{"name one policy file", "sandboxrun policy check FILE"}
					}
					if _, err := p.plan(c.Args().First(), false, nil, p.trust(c)); err != nil {
						return err
					}
					fmt.Fprintf(p.out, "%s: valid\n", c.Args().First())
					return nil
				},
			},
			{
				Name: "schema", Usage: "print the JSON Schema of policies",
				Action: func(c *cli.Context) error {
					if err := noArguments(c); err != nil {
						return err
					}
					_, err := p.out.Write(spec.Schema())
					return err
				},
			},
			{
				Name: "presets", Usage: "list the built-in policies, or print one", ArgsUsage: "[NAME]",
				Action: p.presets,
			},
		},
	}
}

func (p *program) presets(c *cli.Context) error {
	if c.NArg() > 1 {
		return &usage{fmt.Sprintf("unexpected argument %q", c.Args().Get(1)), helpHint(c)}
	}
	if c.NArg() == 0 {
		for _, name := range spec.Presets() {
			fmt.Fprintln(p.out, name)
		}
		return nil
	}
	text, ok := spec.Preset(c.Args().First())
	if !ok {
		return &usage{fmt.Sprintf("there is no preset %q", c.Args().First()), "sandboxrun policy presets"}
	}
	_, err := p.out.Write(text)
	return err
}
