package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/container/bundle"
	"github.com/sandboxrun/sandboxrun/fault"
)

// SpecCommand is the command spec.
func SpecCommand(p *caller.Caller) *cli.Command {
	return &cli.Command{
		Name: "spec", Usage: "print the OCI configuration that a policy becomes", ArgsUsage: "[-- CMD [ARG...]]",
		Description: "With --bundle it writes a complete bundle, which runc and crun run. In a bundle the program is root of a user namespace\n" +
			"in which only the caller's id is mapped. Under sandboxrun it is in one more user namespace, without capabilities.",
		Flags: []cli.Flag{
			flags.Policy(),
			&cli.StringFlag{Name: "bundle", Aliases: []string{"b"}, Usage: "write a bundle to `DIR`, which must be empty or not exist (default: print config.json)"},
		},
		Action: func(c *cli.Context) error { return printSpec(p, c) },
	}
}

func printSpec(p *caller.Caller, c *cli.Context) error {
	d, err := Decide(p, Source{Name: c.String("policy"), Trust: p.Trust(c)})
	if err != nil {
		return err
	}
	plan := d.Plan
	if plan.Relay != nil {
		p.Warn("network: another runtime has no relay: the program reaches its own loopback only")
	}
	if len(plan.Exec.Execute) > 0 {
		p.Warn("processes.execute: another runtime lets the program execute every file that it cannot write")
	}
	if plan.Exec.NoSpawn {
		p.Warn("processes.spawn: another runtime lets the program execute other programs; it starts no process there either")
	}
	if plan.Exec.NoProc { // runc 1.1 needs it until it executes the program
		p.Warn("processes.proc: another runtime shows the program a /proc, with the usual masks")
	}
	if plan.Exec.Guard != nil {
		p.Warn("processes.guard: another runtime starts the interpreter without the guard, and counts no steps")
	}
	if len(plan.View.Gone) > 0 {
		p.Warn("files.hide_modules: with another runtime a program finds empty what should be absent")
	}
	oci, lacks := plan.Portable()
	if c.NArg() > 0 {
		oci.Process.Args = c.Args().Slice()
	}
	oci.Process.Env = plan.Exec.Environ(p.Env, nil)
	if lacks > 0 {
		p.Warn(fmt.Sprintf("files.deny: another runtime cannot mount on symbolic links, and leaves out %d mounts that pin such links", lacks))
	}
	dir := c.String("bundle")
	if dir == "" {
		enc := json.NewEncoder(p.Out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(oci)
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make bundle: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("make bundle: %w", err)
	}
	if len(entries) > 0 {
		return fault.Usage(fmt.Sprintf("directory %q is not empty", dir), "name a directory that does not exist")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("make bundle: %w", err)
	}
	defer root.Close()
	return bundle.Write(root, plan, oci)
}
