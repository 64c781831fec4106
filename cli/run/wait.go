package run

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/detached"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
)

// Wait is the command wait.
func (p *Commands) Wait() *cli.Command {
	return &cli.Command{
		Name: "wait", Usage: "wait for a detached exec and exit with its status", ArgsUsage: "ID EXEC",
		Description: "Exits with the status that the exec would have without --detach. Ctrl-C ends the waiting and leaves the program\n" +
			"running.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print the result as one JSON object, with the output in it"},
			&cli.StringFlag{Name: "timeout", Usage: "stop waiting after `DURATION` (1m30s; a bare number is seconds; default: never); the program goes on"},
		},
		Action: func(c *cli.Context) error {
			args, err := flags.Arguments(c)
			p.jsonResult = c.Bool("json")
			if err != nil {
				return err
			}
			if len(args) != 2 {
				return fault.Usage("name a sandbox and an exec", flags.Help(c))
			}
			most, err := flags.Duration(c, "timeout")
			if err != nil {
				return err
			}
			return p.withDetached(c, args[0], args[1], func(d *detached.Exec) error { return p.wait(d, most) })
		},
	}
}

func (p *Commands) withDetached(c *cli.Context, id, exec string, use func(*detached.Exec) error) error {
	return p.WithStore(c, func(s *container.Store) error {
		d, err := s.Detached(id, exec)
		if err != nil {
			return err
		}
		defer d.Close()
		return use(d)
	})
}

func (p *Commands) wait(d *detached.Exec, most time.Duration) error {
	ended := d.Wait(most)
	res, err := d.Result()
	if err != nil {
		return err
	}
	if ended {
		p.finish(res)
		return nil
	}
	late := &fault.Error{
		Code: fault.WaitTimeout, Hint: "it goes on; to end it: sandboxrun kill " + d.Sandbox + " KILL --exec " + d.Name,
		Err: fmt.Errorf("exec %q of sandbox %q has not ended after %v", d.Name, d.Sandbox, most),
	}
	if p.jsonResult {
		res.Error = &result.Error{Code: late.Code, Message: late.Error(), Hint: late.Hint}
		p.printResult(res)
	}
	return late
}

// Logs is the command logs.
func (p *Commands) Logs() *cli.Command {
	return &cli.Command{
		Name: "logs", Usage: "print the output of a detached exec", ArgsUsage: "ID [EXEC]",
		Description: "Prints the program's standard output on standard output, and its standard error on standard error. EXEC is by default\n" +
			"the latest detached exec.",
		Flags: []cli.Flag{
			flags.Follow("continue until the exec has ended"),
			&cli.BoolFlag{Name: "stdout", Usage: "print only standard output"},
			&cli.BoolFlag{Name: "stderr", Usage: "print only standard error"},
			&cli.IntFlag{Name: "tail", Value: -1, DefaultText: "all", Usage: "begin `N` lines before the end of each stream"},
		},
		Action: func(c *cli.Context) error {
			args, err := flags.Arguments(c)
			if err != nil {
				return err
			}
			if len(args) < 1 || len(args) > 2 {
				return fault.Usage("name a sandbox and an exec", flags.Help(c))
			}
			if c.IsSet("tail") && c.Int("tail") < 0 {
				return fault.Usage(fmt.Sprintf("--tail %d: not a number of lines", c.Int("tail")), "")
			}
			return p.withDetached(c, args[0], append(args, "")[1], func(d *detached.Exec) error { return p.logs(c, d) })
		},
	}
}

func (p *Commands) logs(c *cli.Context, d *detached.Exec) error {
	l := detached.Logs{Tail: c.Int("tail"), Follow: c.Bool("follow")}
	both := c.Bool("stdout") == c.Bool("stderr")
	if both || c.Bool("stdout") {
		l.Stdout = io.Writer(p.Out)
	}
	if both || c.Bool("stderr") {
		l.Stderr = io.Writer(p.Err)
	}
	ctx, stop := context.Background(), func() {}
	if l.Follow {
		ctx, stop = p.Following()
	}
	defer stop()
	if err := d.Logs(ctx, l); err != nil {
		return caller.UnlessClosed(err)
	}
	missing, err := d.Missing(l)
	for _, m := range missing {
		p.Warn(m)
	}
	return err
}
