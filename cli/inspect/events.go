package inspect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/cli/show"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/journal"
)

// Events is the command events.
func (p *Commands) Events() *cli.Command {
	return &cli.Command{
		Name: "events", Usage: "print the events of a sandbox", ArgsUsage: "ID",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print each event as a JSON object on one line"},
			&cli.BoolFlag{Name: "network", Usage: "print only events of the network"},
			flags.Follow("continue with new events until the sandbox ends"),
		},
		Action: func(c *cli.Context) error {
			id, err := flags.ID(c)
			if err != nil {
				return err
			}
			return p.WithStore(c, func(s *container.Store) error {
				ctx, stop := context.Background(), func() {}
				if c.Bool("follow") {
					ctx, stop = p.Following()
				}
				defer stop()
				err := s.Events(ctx, id, c.Bool("follow"), func(e journal.Event) error {
					if c.Bool("network") && e.NetworkEvent == nil {
						return nil
					}
					return p.printEvent(&e, c.Bool("json"))
				})
				if errors.Is(err, context.Canceled) {
					return nil
				}
				return caller.UnlessClosed(err)
			})
		},
	}
}

func (p *Commands) printEvent(e *journal.Event, asJSON bool) error {
	line := string(e.Line)
	if !asJSON {
		line = eventLine(e, time.Now())
	}
	_, err := fmt.Fprintln(p.Out, line)
	return err
}

// eventLine formats an event for people. It leaves the date out if that is today.
func eventLine(e *journal.Event, now time.Time) string {
	at, layout := e.Time.In(now.Location()), "15:04:05.000"
	if at.Format(time.DateOnly) != now.Format(time.DateOnly) {
		layout = time.DateOnly + " " + layout
	}
	parts := []string{at.Format(layout), e.Event}
	if e.Exec != "" {
		parts = append(parts, e.Exec)
	}
	switch {
	case e.Creation != nil:
		parts = append(parts, creation(e.Creation)...)
	case e.ExecStart != nil:
		parts = append(parts, e.Command)
		if e.Detached {
			parts = append(parts, "detached")
		}
	case e.ExecEnd != nil:
		parts = append(parts, fmt.Sprintf("%s %d", e.Outcome, e.ExitCode))
		if e.Finding != nil {
			parts = append(parts, *e.Finding)
		}
		parts = append(parts, show.AboutWall(e.WallMS))
	}
	if e.NetworkEvent != nil {
		parts = append(parts, connection(e.NetworkEvent)...)
	}
	if e.Message != "" {
		parts = append(parts, e.Message)
	}
	return show.OneLine(strings.Join(parts, "  ")) // programs and policies choose these names
}

// connection formats an event of the network: its verdict and the reason.
func connection(n *journal.NetworkEvent) []string {
	to := n.Host
	if n.Port != 0 && n.Kind != "forward" {
		to = net.JoinHostPort(n.Host, strconv.Itoa(n.Port))
	}
	parts := []string{n.Verdict, n.Kind, to}
	if n.Rule != "" {
		parts = append(parts, "by "+n.Rule)
	}
	if n.Via != "" {
		parts = append(parts, "through "+n.Via)
	}
	if n.Reason != "" {
		parts = append(parts, n.Reason)
	}
	if n.Sent > 0 || n.Received > 0 {
		parts = append(parts, fmt.Sprintf("sent %s, received %s", show.AboutSize(n.Sent), show.AboutSize(n.Received)))
	}
	return append(parts, show.AboutWall(n.DurationMS))
}

func creation(c *journal.Creation) []string {
	var parts []string
	if c.Name != "" {
		parts = append(parts, fmt.Sprintf("name %q", c.Name))
	}
	parts = append(parts, "policy "+c.Policy)
	if c.Owner != nil {
		parts = append(parts, fmt.Sprintf("owner %d (%s)", c.Owner.PID, c.Owner.Name))
	}
	for _, l := range c.Limits {
		parts = append(parts, l.Name+" "+show.Limit(l.Name, l.Value))
	}
	return parts
}
