// Package inspect has the commands that look at sandboxes, records and this machine, and print what they find: tables for people, JSON
// for programs. None of them changes anything, and doctor removes the sandbox that it tries.
package inspect

import (
	"cmp"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/cli/show"
	"github.com/sandboxrun/sandboxrun/container"
)

// Commands are the commands of this package, for one caller.
type Commands struct{ *caller.Caller }

// List is the command list.
func (p *Commands) List() *cli.Command {
	return &cli.Command{
		Name: "list", Usage: "list the caller's sandboxes", Flags: []cli.Flag{flags.JSON()},
		Action: func(c *cli.Context) error {
			if err := flags.None(c); err != nil {
				return err
			}
			return p.WithStore(c, func(s *container.Store) error {
				list, err := s.List()
				if err != nil {
					return err
				}
				if c.Bool("json") {
					p.PrintJSON(list)
					return nil
				}
				p.table("ID\tSTATUS\tPID\tAGE\tOWNER\tPOLICY", list)
				return nil
			})
		},
	}
}

func (p *Commands) table(head string, list []container.Info) {
	w := tabwriter.NewWriter(p.Out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, head)
	for _, i := range list {
		owner, age := "-", "-"
		if i.Owner != nil {
			owner = fmt.Sprintf("%d (%s)", i.Owner.PID, i.Owner.Name)
		}
		if !i.Created.IsZero() {
			age = max(0, time.Since(i.Created)).Round(time.Second).String() // the clock may have moved back
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\n", i.ID, i.Status, i.PID, age, owner, i.Policy)
	}
	_ = w.Flush()
}

// PS is the command ps.
func (p *Commands) PS() *cli.Command {
	return &cli.Command{
		Name: "ps", Usage: "list the processes of the programs in a sandbox", ArgsUsage: "ID", Flags: []cli.Flag{flags.JSON()},
		Action: func(c *cli.Context) error {
			id, err := flags.ID(c)
			if err != nil {
				return err
			}
			return p.WithSandbox(c, id, func(sb *container.Sandbox) error {
				list, err := sb.Processes()
				if err != nil {
					return err
				}
				if c.Bool("json") {
					p.PrintJSON(list)
					return nil
				}
				w := tabwriter.NewWriter(p.Out, 0, 8, 2, ' ', 0)
				fmt.Fprintln(w, "PID\tPPID\tINSIDE\tEXEC\tSTATE\tCOMMAND")
				for _, i := range list {
					exec := cmp.Or(i.Exec, "-")
					fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%s\t%s\n", i.PID, i.PPID, i.Inside, exec, i.State, show.OneLine(i.Command))
				}
				return w.Flush()
			})
		},
	}
}
