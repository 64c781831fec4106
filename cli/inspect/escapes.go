package inspect

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/cli/plan"
	"github.com/sandboxrun/sandboxrun/cli/show"
	"github.com/sandboxrun/sandboxrun/container/doctor/escapes"
	"github.com/sandboxrun/sandboxrun/fault"
)

// escapes runs attacks on a sandbox of a policy.
func (p *Commands) escapes(c *cli.Context) error {
	name := c.String("policy")
	if name == "-" {
		return fault.Usage("--escapes needs a policy that it can read twice", flags.Help(c))
	}
	asked, err := plan.Load(p.Caller, plan.Source{Name: name})
	if err != nil {
		return err
	}
	if name == "" {
		name = "default"
	}
	if len(asked.Paths) > 0 {
		if name, err = filepath.Abs(asked.Paths[0]); err != nil {
			return err
		}
	}
	e := escapes.Examination{Binary: "/proc/self/exe", Policy: name, Alone: !asked.Processes.Spawn, Guard: asked.Processes.Guard != "", Userns: asked.Processes.Userns}
	for key, value := range p.Env {
		e.Env = append(e.Env, key+"="+value)
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	report, err := escapes.Examine(ctx, e)
	if err != nil {
		return fmt.Errorf("run attacks: %w", err)
	}
	if report.Count(escapes.Broken) > 0 {
		p.Status = fault.ExitRefused
	}
	if c.Bool("json") {
		p.PrintJSON(map[string]any{
			"escapes": report.Rows, "notes": report.Notes, "policy": name, "uid": os.Geteuid(), escapes.Held: report.Count(escapes.Held),
			escapes.Broken: report.Count(escapes.Broken), escapes.NotTested: report.Count(escapes.NotTested),
		})
		return nil
	}
	p.printEscapes(report)
	return nil
}

// printEscapes prints a row for each attack, and what an attack has printed that the sandbox did not hold.
func (p *Commands) printEscapes(r *escapes.Report) {
	colours := map[string]string{escapes.Held: show.Green, escapes.Broken: show.Alarm, escapes.NotTested: show.Yellow}
	coloured := p.Colours(p.Out.File)
	for _, row := range r.Rows {
		on, off := "", ""
		if coloured {
			on, off = colours[row.Result], show.Normal
		}
		fmt.Fprintf(p.Out, "%s%-10s%s  %s  %s\n", on, strings.ReplaceAll(row.Result, "_", " "), off, row.Name, strings.Join(row.Errors, " "))
		for line := range strings.Lines(row.Output) {
			fmt.Fprintf(p.Out, "            %s\n", strings.TrimRight(line, "\n"))
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintf(p.Out, "note: %s\n", n)
	}
	fmt.Fprintf(p.Out, "\n%d attacks held, %d broken, %d not tested\n", r.Count(escapes.Held), r.Count(escapes.Broken), r.Count(escapes.NotTested))
}
