package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/cli/plan"
	"github.com/sandboxrun/sandboxrun/cli/show"
	"github.com/sandboxrun/sandboxrun/container/scrub"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/record"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/secret"
)

// Redact is the command redact.
func (p *Commands) Redact() *cli.Command {
	return &cli.Command{
		Name: "redact", Usage: "take the values of keys out of files, in place", ArgsUsage: "DIR...",
		Description: "Replaces the values of key-like variables in all files below each DIR, which may also be one file, by <NAME>, as\n" +
			"env.redact does. The variables are the caller's, and those that the policy of --policy sets. A file is replaced\n" +
			"whole or not at all. Symlinks are not followed. Programs that write the files must have ended.\n" +
			"Exit status: 0 if no value is left, 1 if one is left or may be.",
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: "policy", Aliases: []string{"p"},
				Usage: "look for the values of env.set in the policy `FILE` (TOML or JSON, - for standard input) too, or in the preset of that name",
			},
			&cli.BoolFlag{Name: "dry-run", Usage: "change nothing; exit with 1 if there is a value"},
			flags.JSON(),
		},
		Action: p.redact,
	}
}

func (p *Commands) redact(c *cli.Context) error {
	paths, err := flags.Arguments(c)
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fault.Usage("name a directory", flags.Help(c))
	}
	envs := []map[string]string{p.Env}
	if name := c.String("policy"); name != "" {
		own, err := plan.Load(p.Caller, plan.Source{Name: name})
		if err != nil {
			return err
		}
		envs = append(envs, own.Env.Set)
	}
	r := record.NewRedactor(envs...)
	if r == nil { // or it would say that no value is left
		return fault.New(fault.NoKeys, "set the variables whose values are to be replaced, or name the policy that sets them: --policy",
			"there is no variable *%s of %d characters or more", strings.Join(secret.Ends(), ", *"), secret.MinLength)
	}
	dry := c.Bool("dry-run")
	report, err := (&scrub.Scrubber{Redactor: r, DryRun: dry}).Scrub(paths)
	if err != nil {
		return err
	}
	if len(report.Left) > 0 || dry && report.Replaced > 0 {
		p.Status = fault.ExitRefused
	}
	if c.Bool("json") {
		p.PrintJSON(report)
		return nil
	}
	p.showScrubbed(report, dry)
	return nil
}

func (p *Commands) showScrubbed(report *scrub.Report, dry bool) {
	for _, one := range report.Changed {
		var values []string
		for _, name := range slices.Sorted(maps.Keys(one.Values)) {
			values = append(values, fmt.Sprintf("%d %s", one.Values[name], pathname.Printable(name)))
		}
		fmt.Fprintf(p.Out, "%s: %s\n", pathname.Printable(one.Path), strings.Join(values, ", "))
		if one.Elsewhere > 0 && !dry {
			p.Warn(fmt.Sprintf("%s has %d other hard links, not named, that keep the values", pathname.Printable(one.Path), one.Elsewhere))
		}
	}
	for _, left := range report.Left {
		p.Warn(fmt.Sprintf("left: %s: %s", pathname.Printable(left.Path), show.OneLine(left.Why)))
	}
	done := "replaced"
	if dry {
		done = "found"
	}
	fmt.Fprintf(p.Out, "%d values %s in %d places; %d files read, %d left\n", report.Replaced, done, len(report.Changed), report.Files, len(report.Left))
}
