package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/cli/show"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/stats"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/units"
)

const (
	defaultInterval = time.Second
	leastInterval   = 100 * time.Millisecond
	mostInterval    = time.Hour
)

// Stats is the command stats.
func (p *Commands) Stats() *cli.Command {
	return &cli.Command{
		Name: "stats", Usage: "print what a sandbox uses now, beside its limits", ArgsUsage: "ID",
		Description: "With --follow it repeats until the sandbox ends or Ctrl-C: on a terminal with a table that replaces the last one,\n" +
			"else with one line each time.",
		Flags: []cli.Flag{
			flags.JSON(), flags.Follow("repeat until the sandbox ends"),
			&cli.StringFlag{Name: "interval", Usage: "with --follow: repeat after `DURATION` (0.1s to 1h; a bare number is seconds)", DefaultText: "1s"},
		},
		Action: p.stats,
	}
}

func (p *Commands) stats(c *cli.Context) error {
	id, err := flags.ID(c)
	if err != nil {
		return err
	}
	interval, err := parseInterval(c)
	if err != nil {
		return err
	}
	return p.WithSandbox(c, id, func(sb *container.Sandbox) error {
		show := p.statsView(c.Bool("json"), c.Bool("follow"))
		if !c.Bool("follow") {
			s, err := sb.Meter().Read()
			if err != nil {
				return err
			}
			return show(&s)
		}
		ctx, stop := p.Following()
		defer stop()
		err := followStats(ctx, sb, interval, show)
		if ctx.Err() != nil && p.redraws() {
			fmt.Fprint(p.Out, "\r\x1b[K") // the terminal's ^C
		}
		return err
	})
}

func parseInterval(c *cli.Context) (time.Duration, error) {
	text := c.String("interval")
	switch {
	case text == "":
		return defaultInterval, nil
	case !c.Bool("follow"):
		return 0, fault.Usage("--interval goes with --follow", flags.Help(c))
	}
	d, err := units.ParseDuration(text)
	if err != nil || d < leastInterval || d > mostInterval {
		return 0, fault.Usage(fmt.Sprintf("--interval %q is no duration from 0.1s to 1h", text), "such as 0.5, 2s or 1m; a bare number is seconds")
	}
	return d, nil
}

// followStats repeats at a steady pace until the sandbox or ctx ends. Neither is an error.
func followStats(ctx context.Context, sb *container.Sandbox, interval time.Duration, show func(*stats.Stats) error) error {
	meter := sb.Meter()
	for next := time.Now(); ctx.Err() == nil; {
		s, err := meter.Read()
		if err != nil {
			return unlessLost(err)
		}
		if err := show(&s); err != nil {
			return caller.UnlessClosed(err)
		}
		for !next.After(time.Now()) {
			next = next.Add(interval)
		}
		if sb.WaitEnd(ctx, time.Until(next)) {
			break
		}
	}
	return nil
}

func unlessLost(err error) error {
	if caller.Describe(err).Code == fault.SandboxLost {
		return nil
	}
	return err
}

// statsView chooses the format of the figures.
func (p *Commands) statsView(asJSON, follow bool) func(*stats.Stats) error {
	switch {
	case asJSON:
		return func(s *stats.Stats) error {
			data, err := json.Marshal(s)
			if err == nil {
				_, err = p.Out.Write(append(data, '\n'))
			}
			return err
		}
	case follow && !p.redraws():
		return func(s *stats.Stats) error {
			_, err := fmt.Fprintln(p.Out, statsLine(s))
			return err
		}
	case follow:
		return p.liveTable()
	}
	return func(s *stats.Stats) error {
		_, err := fmt.Fprintln(p.Out, strings.Join(p.statsTable(s, false), "\n"))
		return err
	}
}

// redraws reports whether standard output is a terminal that can move its cursor up.
func (p *Commands) redraws() bool { return caller.IsTerminal(p.Out.File) && p.Env["TERM"] != "dumb" }

// liveTable draws each table over the last one, in one write.
func (p *Commands) liveTable() func(*stats.Stats) error {
	var last []string
	return func(s *stats.Stats) error {
		var b bytes.Buffer
		if rows := p.rows(last); rows > 0 {
			fmt.Fprintf(&b, "\r\x1b[%dA", rows)
		}
		last = p.statsTable(s, true)
		for _, line := range last {
			fmt.Fprintf(&b, "%s\x1b[K\n", line)
		}
		b.WriteString("\x1b[J") // a narrower window wrapped the table
		_, err := p.Out.Write(b.Bytes())
		return err
	}
}

// rows is the number of rows that lines take on the terminal at its present width.
func (p *Commands) rows(lines []string) int {
	width := int(caller.TerminalSize(p.Out.File).Cols)
	n := 0
	for _, line := range lines {
		n += max(1, (visibleWidth(line)+width-1)/width)
	}
	return n
}

// visibleWidth is the width without escape sequences.
func visibleWidth(line string) int {
	n := len(line)
	for _, c := range []string{show.Yellow, show.Normal} {
		n -= strings.Count(line, c) * len(c)
	}
	return n
}
