package inspect

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/cli/show"
	"github.com/sandboxrun/sandboxrun/container/doctor"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
)

// Doctor is the command doctor.
func (p *Commands) Doctor() *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "try what this machine can enforce, and print how to repair the rest",
		Description: "Tries each part of a sandbox, and runs a program under the default policy.\n" +
			"For each protection that is weaker or missing it prints what that costs, and the command that repairs it.\n" +
			"Exit status: 0 if this machine enforces the default policy in full, else 1.",
		Flags: []cli.Flag{
			flags.JSON(),
			&cli.BoolFlag{Name: "checks", Usage: "print the table of the checks at the start of every sandbox, and try nothing"},
			&cli.BoolFlag{Name: "print-apparmor", Usage: "print an AppArmor profile that lets this binary make user namespaces"},
		},
		Action: p.doctor,
	}
}

func (p *Commands) doctor(c *cli.Context) error {
	if err := flags.None(c); err != nil {
		return err
	}
	if c.Bool("checks") {
		p.printChecks(c.Bool("json"))
		return nil
	}
	if c.Bool("print-apparmor") {
		if c.Bool("json") {
			return fault.Usage("--json and --print-apparmor exclude each other", flags.Help(c))
		}
		profile, err := doctor.AppArmorProfile()
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(p.Out, profile)
		return err
	}
	// A signal must not leave the trial sandbox behind.
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	report := doctor.Examine(ctx, doctor.Examination{State: p.StatePath(c), Path: p.Env["PATH"]})
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("examine this machine: %w", err)
	}
	if !report.Enforceable {
		p.Status = fault.ExitRefused
	}
	if c.Bool("json") {
		p.PrintJSON(DoctorJSON(report))
		return nil
	}
	p.printReport(report)
	return nil
}

// doctorJSON is the report as JSON. Error is the error of run.
type doctorJSON struct {
	*doctor.Report
	Error *result.Error `json:"error"`
	UID   int           `json:"uid"`
}

// DoctorJSON makes a report for programs.
func DoctorJSON(r *doctor.Report) any {
	j := doctorJSON{Report: r, UID: os.Geteuid()}
	if r.Err != nil {
		j.Error = caller.Describe(r.Err)
	}
	return j
}

// statusColours are the colours of each status on a terminal.
func statusColours() map[string]string {
	return map[string]string{doctor.OK: show.Green, doctor.Weaker: show.Yellow, doctor.Missing: show.Alarm}
}

// printReport prints a row for each protection. Below one that is not ok it prints the cost and the command that repairs it.
func (p *Commands) printReport(r *doctor.Report) {
	const row, more = "%s%-7s%s  %-*s  %s\n", "%-9s%-*s%s\n"
	colours, width := p.Colours(p.Out.File), 0
	for _, c := range r.Checks {
		width = max(width, len(c.Name))
	}
	for _, c := range r.Checks {
		on, off := "", ""
		if colours {
			on, off = statusColours()[c.Status], show.Normal
		}
		fmt.Fprintf(p.Out, row, on, c.Status, off, width, c.Name, c.Value)
		if c.Cost != "" {
			fmt.Fprintf(p.Out, more, "", width+2, "", "costs: "+c.Cost)
		}
		if c.Fix != "" {
			fmt.Fprintf(p.Out, more, "", width+2, "", "fix:   "+c.Fix)
		}
	}
	if r.Enforceable {
		fmt.Fprintln(p.Out, "\nThe default policy can be enforced in full.")
		return
	}
	fmt.Fprintln(p.Out, "\nThe default policy cannot be enforced in full.")
	if r.Err != nil {
		p.Complain(caller.Describe(r.Err))
	}
}
