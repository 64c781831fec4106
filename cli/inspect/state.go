package inspect

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/cli/show"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/hooks"
)

// State is the command state.
func (p *Commands) State() *cli.Command {
	return &cli.Command{
		Name: "state", Usage: "print the state of a sandbox", ArgsUsage: "ID", Flags: []cli.Flag{flags.JSON()},
		Description: "Prints a table on a terminal, else JSON.",
		Action: func(c *cli.Context) error {
			id, err := flags.ID(c)
			if err != nil {
				return err
			}
			return p.WithStore(c, func(s *container.Store) error {
				state, err := s.Describe(id)
				if err != nil {
					return err
				}
				if c.Bool("json") || !caller.IsTerminal(p.Out.File) {
					p.PrintJSON(state)
					return nil
				}
				return p.showState(state)
			})
		},
	}
}

// showState prints the state for people.
func (p *Commands) showState(d *container.Description) error {
	bold, red, off := "", "", ""
	if p.Colours(p.Out.File) {
		bold, red, off = "\x1b[1m", "\x1b[31m", "\x1b[0m"
	}
	w := tabwriter.NewWriter(p.Out, 0, 8, 2, ' ', 0)
	for _, row := range stateRows(d) {
		if row[1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", row[0], show.OneLine(row[1]))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, c := range d.Checks {
		colour := ""
		if c.Result == hooks.Broken {
			colour = red
		}
		if c.Result != hooks.Held {
			fmt.Fprintf(p.Out, "%s%s%s %s%s: %s%s\n", bold, show.OneLine(c.Name), off, colour, c.Result, show.OneLine(c.Detail), off)
		}
	}
	return nil
}

// stateRows are the properties of a sandbox that have a value.
func stateRows(d *container.Description) [][2]string {
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	created, owner := "", ""
	if !d.Created.IsZero() {
		created = d.Created.Local().Format("2006-01-02 15:04:05 MST")
	}
	if d.Owner != nil {
		owner = fmt.Sprintf("%d (%s)", d.Owner.PID, d.Owner.Name)
	}
	rows := [][2]string{
		{"id", d.ID},
		{"status", d.Status},
		{"pid", number(d.PID)},
		{"created", created},
		{"owner", owner},
		{"policy", strings.TrimSpace(d.Policy + " " + d.Digest)},
		{"network", d.Network},
		{"isolated", checkSummary(d)},
		{"detached execs", number(d.Detached)},
	}
	for _, l := range d.Limits {
		rows = append(rows, [2]string{"limit " + l.Name, fmt.Sprintf("%s, by %s", show.Limit(l.Name, l.Value), cmp.Or(l.EnforcedBy, "nothing"))})
	}
	for _, weak := range d.Weaker {
		rows = append(rows, [2]string{"weaker", weak.What + ": " + weak.Reason})
	}
	for _, warning := range d.Warnings {
		rows = append(rows, [2]string{"warning", warning})
	}
	return rows
}

func checkSummary(d *container.Description) string {
	count := map[hooks.Outcome]int{}
	for _, c := range d.Checks {
		count[c.Result]++
	}
	return fmt.Sprintf("%t: %d checks held, %d broken, %d not tested", d.Isolated, count[hooks.Held], count[hooks.Broken], count[hooks.NotTested])
}
