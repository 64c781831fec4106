package flags

import (
	"github.com/urfave/cli/v2"
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

// Keep is the flag for what a sandbox leaves on disk.
func Keep() cli.Flag {
	return &cli.BoolFlag{Name: "keep", Usage: "leave the workspace of source = \"disk\", and copies, when the sandbox has ended, and say where they are"}
}

// Again is the String of a flag that collects values, after Set. The library copies values through it, and Set must not collect that copy.
const Again = "\x00"
