package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/detached"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

func (p *program) waitCommand() *cli.Command {
	return &cli.Command{
		Name: "wait", Usage: "wait for a detached exec and exit with its status", ArgsUsage: "ID EXEC",
		Description: "Exits with the status that the exec would have without --detach. Ctrl-C ends the waiting and leaves the program\n" +
			"running.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print the result as one JSON object, with the output in it"},
			&cli.StringFlag{Name: "timeout", Usage: "stop waiting after `DURATION` (1m30s; a bare number is seconds; default: never); the program goes on"},
		},
		Action: func(c *cli.Context) error {
			args, err := arguments(c)
			p.jsonResult = c.Bool("json")
			if err != nil {
				return err
			}
			if len(args) != 2 {
				return &usage{"name a sandbox and an exec", helpHint(c)}
			}
			most, err := duration(c, "timeout")
			if err != nil {
				return err
			}
			return p.withDetached(c, args[0], args[1], func(d *detached.Exec) error { return p.wait(d, most) })
		},
	}
}

func (p *program) withDetached(c *cli.Context, id, exec string, use func(*detached.Exec) error) error {
	return p.withStore(c, func(s *container.Store) error {
		d, err := s.Detached(id, exec)
		if err != nil {
			return err
		}
		defer d.Close()
		return use(d)
	})
}

func (p *program) wait(d *detached.Exec, most time.Duration) error {
	ended := d.Wait(most)
	res, err := d.Result()
	if err != nil {
		return err
	}
	if ended {
		p.finish(res)
		return nil
	}
	late := &container.Error{
		Code: "wait_timeout", Hint: "it goes on; to end it: sandboxrun kill " + d.Sandbox + " KILL --exec " + d.Name,
		Err: fmt.Errorf("exec %q of sandbox %q has not ended after %v", d.Name, d.Sandbox, most),
	}
	if p.jsonResult {
		res.Error = &result.Error{Code: late.Code, Message: late.Error(), Hint: late.Hint}
		p.printJSON(res)
	}
	return late
}

func (p *program) logsCommand() *cli.Command {
	return &cli.Command{
		Name: "logs", Usage: "print the output of a detached exec", ArgsUsage: "ID [EXEC]",
		Description: "Prints the program's standard output on standard output, and its standard error on standard error. EXEC is by default\n" +
			"the latest detached exec.",
		Flags: []cli.Flag{
			followFlag("continue until the exec has ended"),
			&cli.BoolFlag{Name: "stdout", Usage: "print only standard output"},
			&cli.BoolFlag{Name: "stderr", Usage: "print only standard error"},
			&cli.IntFlag{Name: "tail", Value: -1, DefaultText: "all", Usage: "begin `N` lines before the end of each stream"},
		},
		Action: func(c *cli.Context) error {
			args, err := arguments(c)
			if err != nil {
				return err
			}
			if len(args) < 1 || len(args) > 2 {
				return &usage{"name a sandbox and an exec", helpHint(c)}
			}
			if c.IsSet("tail") && c.Int("tail") < 0 {
				return &usage{fmt.Sprintf("--tail %d: not a number of lines", c.Int("tail")), ""}
			}
			return p.withDetached(c, args[0], append(args, "")[1], func(d *detached.Exec) error { return p.logs(c, d) })
		},
	}
}

func (p *program) logs(c *cli.Context, d *detached.Exec) error {
	l := detached.Logs{Tail: c.Int("tail"), Follow: c.Bool("follow")}
	both := c.Bool("stdout") == c.Bool("stderr")
	if both || c.Bool("stdout") {
		l.Stdout = io.Writer(p.out)
	}
	if both || c.Bool("stderr") {
		l.Stderr = io.Writer(p.err)
	}
	ctx, stop := context.Background(), func() {}
	if l.Follow {
		ctx, stop = p.following()
	}
	defer stop()
	if err := d.Logs(ctx, l); err != nil {
		return unlessClosed(err)
	}
	missing, err := d.Missing(l)
	for _, m := range missing {
		p.warn(m)
	}
	return err
}

// duration is the value of a flag, or 0 without the flag.
func duration(c *cli.Context, name string) (time.Duration, error) {
	text := c.String(name)
	if text == "" {
		return 0, nil
	}
	d, err := policy.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, &usage{
			fmt.Sprintf("--%s %q is no duration above 0", name, text), `such as 90, 1.5s or 1m30s; a bare number is seconds`,
		}
	}
	return d, nil
}

// commandAfter is the command after a sandbox's id. Flags may stand between the two.
func commandAfter(c *cli.Context) ([]string, error) {
	rest := c.Args().Tail()
	if len(rest) == 0 || !strings.HasPrefix(rest[0], "-") || rest[0] == "-" {
		return rest, nil
	}
	set, err := flagSet(c)
	if err != nil {
		return nil, err
	}
	if err := set.Parse(rest); err != nil {
		return nil, flagError(c, err)
	}
	return set.Args(), setAgain(c, set)
}

// flagSet has the flags of a command.
func flagSet(c *cli.Context) (*flag.FlagSet, error) {
	set := flag.NewFlagSet(c.Command.Name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	for _, f := range c.Command.Flags {
		if err := f.Apply(set); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// arguments are the arguments of a command that runs no program. Flags may follow them.
func arguments(c *cli.Context) ([]string, error) {
	var args []string
	err := eachArgument(c, func(arg string) { args = append(args, arg) })
	return args, err
}

// eachArgument calls take with each argument. It sets a flag that follows an argument after that call.
func eachArgument(c *cli.Context, take func(string)) error {
	set, err := flagSet(c)
	if err != nil {
		return err
	}
	rest := c.Args().Slice()
	var literal []string
	if at := slices.Index(rest, "--"); at >= 0 {
		rest, literal = rest[:at], rest[at+1:]
	}
	for len(rest) > 0 {
		if err := set.Parse(rest); err != nil {
			return flagError(c, err)
		}
		if rest = set.Args(); len(rest) > 0 {
			take(rest[0])
			rest = rest[1:]
		}
	}
	for _, arg := range literal {
		take(arg)
	}
	return setAgain(c, set)
}

// setAgain copies flags from another set to the command, under the names by which the code reads them.
func setAgain(c *cli.Context, set *flag.FlagSet) error {
	var err error
	set.Visit(func(given *flag.Flag) {
		values := []string{given.Value.String()}
		if list, ok := given.Value.(interface{ Value() []string }); ok {
			values = list.Value()
		}
		for _, f := range c.Command.Flags {
			for _, value := range values {
				if slices.Contains(f.Names(), given.Name) && err == nil {
					err = c.Set(f.Names()[0], value)
				}
			}
		}
	})
	return err
}

// flagError is the error of a flag that follows an argument.
func flagError(c *cli.Context, err error) error { return usageError(c, err, false) }
