package plan

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Command is the command policy.
func Command(p *caller.Caller) *cli.Command {
	return &cli.Command{
		Name: "policy", Usage: "check or show a policy, or print the schema or the presets",
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return cli.ShowSubcommandHelp(c)
			}
			return flags.UnknownCommand(c.Command.Subcommands, "policy ", c.Args().First())
		},
		Subcommands: []*cli.Command{
			{
				Name: "check", Usage: "say whether a policy is valid on this machine", ArgsUsage: "FILE",
				Action: func(c *cli.Context) error {
					if c.NArg() != 1 {
						return fault.Usage("name one policy file", "sandboxrun policy check FILE")
					}
					if _, err := Decide(p, Source{Name: c.Args().First(), Trust: p.Trust(c)}); err != nil {
						return err
					}
					fmt.Fprintf(p.Out, "%s: valid\n", c.Args().First())
					return nil
				},
			},
			show(p),
			{
				Name: "schema", Usage: "print the JSON Schema of policies",
				Action: func(c *cli.Context) error {
					if err := flags.None(c); err != nil {
						return err
					}
					_, err := p.Out.Write(policy.Schema())
					return err
				},
			},
			{
				Name: "presets", Usage: "list the built-in policies, or print one", ArgsUsage: "[NAME]",
				Action: func(c *cli.Context) error { return presets(p, c) },
			},
		},
	}
}

// show prints the policy that run would use.
func show(p *caller.Caller) *cli.Command {
	grants := &Grants{}
	return &cli.Command{
		Name: "show", Usage: "print the policy that run would use, as one file",
		Flags: append([]cli.Flag{flags.Policy()}, grants.Flags()...),
		Action: func(c *cli.Context) error {
			if err := flags.None(c); err != nil {
				return err
			}
			shown, err := Load(p, Source{Name: c.String("policy"), Workspace: true, Grants: *grants})
			if err != nil {
				return err
			}
			_, err = p.Out.Write(shown.Canonical())
			return err
		},
	}
}

func presets(p *caller.Caller, c *cli.Context) error {
	if c.NArg() > 1 {
		return fault.Usage(fmt.Sprintf("unexpected argument %q", c.Args().Get(1)), flags.Help(c))
	}
	if c.NArg() == 0 {
		for _, name := range policy.Presets() {
			fmt.Fprintln(p.Out, name)
		}
		return nil
	}
	text, ok := policy.Preset(c.Args().First())
	if !ok {
		return fault.Usage(fmt.Sprintf("there is no preset %q", c.Args().First()), "sandboxrun policy presets")
	}
	_, err := p.Out.Write(text)
	return err
}
