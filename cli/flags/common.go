package flags

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/fault"
)

// JSON is the flag of commands that print JSON on demand.
func JSON() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "print JSON"} }

// Follow is the flag of commands that go on as long as the sandbox.
func Follow(usage string) cli.Flag {
	return &cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: usage}
}

// Policy is the flag that names a policy.
func Policy() cli.Flag {
	return &cli.StringFlag{
		Name: "policy", Aliases: []string{"p"},
		Usage: "use the policy `FILE` (TOML or JSON, - for standard input), or the preset of that name",
	}
}

// later are flags of the command line's contract that this version does not support. They are refused, never ignored.
func later() []string { return []string{"view", "translate", "read"} }

// RefuseLater refuses these flags.
func RefuseLater(c *cli.Context) error {
	for _, name := range later() {
		if c.IsSet(name) && (name != "read" || c.Command.Name == "exec") {
			return fault.Usage(fmt.Sprintf("--%s is not supported yet", name), "leave it out")
		}
	}
	return nil
}

// Again is the String of a flag that collects values, after Set. The library copies values through it, and Set must not collect that copy.
const Again = "\x00"
