package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/scrub"
	"github.com/sandboxrun/sandboxrun/record"
)

func (p *program) redactCommand() *cli.Command {
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
			jsonFlag(),
		},
		Action: p.redact,
	}
}

func (p *program) redact(c *cli.Context) error {
	paths, err := arguments(c)
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return &usage{"name a directory", helpHint(c)}
	}
	envs := []map[string]string{p.env}
	if name := c.String("policy"); name != "" {
		policy, err := p.loadPolicy(name, false)
		if err != nil {
			return err
		}
		envs = append(envs, policy.Env.Set)
	}
	r := record.NewRedactor(envs...)
	if r == nil { // or it would say that no value is left
		return &container.Error{
			Code: "no_keys", Hint: "set the variables whose values are to be replaced, or name the policy that sets them: --policy",
			Err: fmt.Errorf("there is no variable *%s of %d characters or more", strings.Join(record.SecretEnds(), ", *"), record.SecretLength),
		}
	}
	dry := c.Bool("dry-run")
	report, err := (&scrub.Scrubber{Redactor: r, DryRun: dry}).Scrub(paths)
	if err != nil {
		return err
	}
	if len(report.Left) > 0 || dry && report.Replaced > 0 {
		p.status = exitRefused
	}
	if c.Bool("json") {
		p.printJSON(report)
		return nil
	}
	p.showScrubbed(report, dry)
	return nil
}

func (p *program) showScrubbed(report *scrub.Report, dry bool) {
	for _, one := range report.Changed {
		var values []string
		for _, name := range slices.Sorted(maps.Keys(one.Values)) {
			values = append(values, fmt.Sprintf("%d %s", one.Values[name], plain(name)))
		}
		fmt.Fprintf(p.out, "%s: %s\n", plain(one.Path), strings.Join(values, ", "))
		if one.Elsewhere > 0 && !dry {
			p.warn(fmt.Sprintf("%s has %d other hard links, not named, that keep the values", plain(one.Path), one.Elsewhere))
		}
	}
	for _, left := range report.Left {
		p.warn(fmt.Sprintf("left: %s: %s", plain(left.Path), printable(left.Why)))
	}
	done := "replaced"
	if dry {
		done = "found"
	}
	fmt.Fprintf(p.out, "%d values %s in %d places; %d files read, %d left\n", report.Replaced, done, len(report.Changed), report.Files, len(report.Left))
}
