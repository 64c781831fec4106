package cli

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/spec"
)

func (p *program) execCommand() *cli.Command {
	return &cli.Command{
		Name: "exec", Usage: "run a program in a sandbox that exists", ArgsUsage: "ID [--] CMD [ARG...]",
		Description: "Each exec has its own processes, which end with it. It sees the sandbox's files as earlier execs have left them.\n" +
			"Its standard input is empty unless --stdin or --tty is given.",
		Flags: append(
			execFlags(),
			&cli.StringFlag{Name: "cwd", Aliases: []string{"C"}, Usage: "start in `DIR` inside, relative to the policy's working directory"},
			&cli.BoolFlag{Name: "stdin", Aliases: []string{"i"}, Usage: "pass standard input on"},
			&cli.BoolFlag{Name: "detach", Hidden: true},
			&cli.BoolFlag{Name: "translate", Hidden: true},
			&cli.StringSliceFlag{Name: "read", Hidden: true},
		),
		Action: func(c *cli.Context) error {
			p.jsonResult = c.Bool("json")
			return p.exec(c)
		},
	}
}

func (p *program) exec(c *cli.Context) error {
	if err := refuseLater(c); err != nil {
		return err
	}
	if c.NArg() == 0 {
		return &usage{"the sandbox's id is missing", helpHint(c)}
	}
	command := c.Args().Tail()
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	signals := p.catchSignals()
	defer signals.stop()
	req, err := p.request(c, command)
	if err != nil {
		return err
	}
	req.Dir = c.String("cwd")
	if c.Bool("stdin") || req.Tty != nil {
		req.Stdin = p.in
	}
	store, err := p.store(c)
	if err != nil {
		return err
	}
	defer store.Close()
	sb, err := store.Open(c.Args().First())
	if err != nil {
		return err
	}
	defer sb.Close()
	return p.execute(sb, req, signals)
}

// request is what both run and exec say about a program.
func (p *program) request(c *cli.Context, command []string) (container.Request, error) {
	req := container.Request{Args: command, Caller: p.env, Env: map[string]string{}}
	if len(command) == 0 {
		return req, &usage{"the command is missing", helpHint(c)}
	}
	if text := c.String("timeout"); text != "" {
		d, err := spec.ParseDuration(text)
		if err != nil || d <= 0 {
			return req, &usage{fmt.Sprintf("--timeout %q is no duration above 0", text), `such as 90, 1.5s or 1m30s; a bare number is seconds`}
		}
		req.Timeout = d
	}
	for _, kv := range append(c.StringSlice("env"), c.StringSlice("e")...) {
		name, value, given := strings.Cut(kv, "=")
		if !given {
			value, given = p.env[name]
		}
		if name == "" || !given {
			return req, &usage{fmt.Sprintf("--env %q: not NAME=VALUE, nor a variable of yours", kv), ""}
		}
		req.Env[name] = value
	}
	if c.Bool("tty") {
		req.Tty = terminalSize(p.in)
	}
	if !p.jsonResult {
		req.Stdout, req.Stderr = p.out, p.err
	}
	return req, nil
}

// execute runs the program and says how it ended.
func (p *program) execute(sb *container.Sandbox, req container.Request, signals *signals) error {
	restore, err := p.rawTerminal(req)
	if err != nil {
		return err
	}
	defer restore()
	running, err := sb.Start(req)
	if err != nil {
		return err
	}
	signals.forward(running, p.in)
	result, err := running.Wait()
	restore()
	if err != nil {
		return err
	}
	p.finish(result)
	return nil
}

func (p *program) finish(r *container.Result) {
	p.status = r.ExitCode
	for _, w := range r.Warnings {
		p.warn(w)
	}
	switch {
	case p.jsonResult:
		p.printJSON(r)
	case r.Error != nil:
		p.complain(said{r.Error.Code, r.Error.Message, r.Error.Hint})
	case r.TimedOut:
		p.complain(said{"timeout", fmt.Sprintf("the program was ended after %.1f s", r.Usage.WallMS/1000), ""})
	}
}
