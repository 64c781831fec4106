package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/spec"
)

const (
	defaultInterval = time.Second
	leastInterval   = 100 * time.Millisecond
	mostInterval    = time.Hour
)

func followFlag(usage string) cli.Flag {
	return &cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: usage}
}

func (p *program) statsCommand() *cli.Command {
	return &cli.Command{
		Name: "stats", Usage: "show what a sandbox uses now, beside its limits", ArgsUsage: "ID",
		Description: "With --follow it goes on until the sandbox ends or you press Ctrl-C: on a terminal with a table in its place, else\n" +
			"with a line each time.",
		Flags: []cli.Flag{
			jsonFlag(), followFlag("look again and again, until the sandbox ends"),
			&cli.StringFlag{Name: "interval", Usage: "with --follow: look every `DURATION` (0.1s to 1h; a bare number is seconds)", DefaultText: "1s"},
		},
		Action: p.stats,
	}
}

func (p *program) stats(c *cli.Context) error {
	id, err := oneID(c)
	if err != nil {
		return err
	}
	interval, err := parseInterval(c)
	if err != nil {
		return err
	}
	return p.withSandbox(c, id, func(sb *container.Sandbox) error {
		show := p.statsView(c.Bool("json"), c.Bool("follow"))
		if !c.Bool("follow") {
			s, err := sb.Meter().Look()
			if err != nil {
				return err
			}
			return show(&s)
		}
		ctx, stop := p.following()
		defer stop()
		err := followStats(ctx, sb, interval, show)
		if ctx.Err() != nil && p.redraws() {
			fmt.Fprint(p.out, "\r\x1b[K") // the ^C that the terminal has shown
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
		return 0, &usage{"--interval goes with --follow", helpHint(c)}
	}
	d, err := spec.ParseDuration(text)
	if err != nil || d < leastInterval || d > mostInterval {
		return 0, &usage{fmt.Sprintf("--interval %q is no duration from 0.1s to 1h", text), "such as 0.5, 2s or 1m; a bare number is seconds"}
	}
	return d, nil
}

// following is what a command goes on for: until Ctrl-C, or until nobody reads standard output any more, which a write
// may be long in telling.
func (p *program) following() (context.Context, context.CancelFunc) {
	interrupted := make(chan os.Signal, 1)
	if !signal.Ignored(unix.SIGINT) { // in the background of a script it is nobody's
		signal.Notify(interrupted, unix.SIGINT)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		<-interrupted
		stop()
	}()
	go func() {
		fds := []unix.PollFd{{Fd: int32(p.out.f.Fd())}} // POLLERR needs no asking for
		for {
			_, err := unix.Poll(fds, -1)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			stop()
			return
		}
	}()
	return ctx, stop
}

// followStats looks at a steady pace, until the sandbox or ctx ends: both are as they should be.
func followStats(ctx context.Context, sb *container.Sandbox, interval time.Duration, show func(*container.Stats) error) error {
	meter := sb.Meter()
	for next := time.Now(); ctx.Err() == nil; {
		s, err := meter.Look()
		if err != nil {
			return unlessLost(err)
		}
		if err := show(&s); err != nil {
			return unlessClosed(err)
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
	if describe(err).code == "sandbox_lost" {
		return nil
	}
	return err
}

// unlessClosed leaves out that whoever read our output has had enough.
func unlessClosed(err error) error {
	if errors.Is(err, unix.EPIPE) {
		return nil
	}
	return err
}

// statsView chooses how figures are shown.
func (p *program) statsView(asJSON, follow bool) func(*container.Stats) error {
	switch {
	case asJSON:
		return func(s *container.Stats) error {
			data, err := json.Marshal(s)
			if err == nil {
				_, err = p.out.Write(append(data, '\n'))
			}
			return err
		}
	case follow && !p.redraws():
		return func(s *container.Stats) error {
			_, err := fmt.Fprintln(p.out, statsLine(s))
			return err
		}
	case follow:
		return p.liveTable()
	}
	return func(s *container.Stats) error {
		_, err := fmt.Fprintln(p.out, strings.Join(p.statsTable(s, false), "\n"))
		return err
	}
}

// redraws says whether standard output is a terminal on which one can go back.
func (p *program) redraws() bool { return isTerminal(p.out.f) && p.env["TERM"] != "dumb" }

// liveTable draws each table over the last one, in one write.
func (p *program) liveTable() func(*container.Stats) error {
	var last []string
	return func(s *container.Stats) error {
		var b bytes.Buffer
		if rows := p.rows(last); rows > 0 {
			fmt.Fprintf(&b, "\r\x1b[%dA", rows)
		}
		last = p.statsTable(s, true)
		for _, line := range last {
			fmt.Fprintf(&b, "%s\x1b[K\n", line)
		}
		b.WriteString("\x1b[J") // the table was wrapped in a narrower window
		_, err := p.out.Write(b.Bytes())
		return err
	}
}

// rows is how many rows of the terminal lines take, which has another width by now perhaps.
func (p *program) rows(lines []string) int {
	width := int(terminalSize(p.out.f).Cols)
	n := 0
	for _, line := range lines {
		n += max(1, (visibleWidth(line)+width-1)/width)
	}
	return n
}

// visibleWidth leaves out the colours.
func visibleWidth(line string) int {
	n := len(line)
	for _, c := range []string{warning, normal} {
		n -= strings.Count(line, c) * len(c)
	}
	return n
}
