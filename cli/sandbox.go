package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/cli/plan"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/fault"
)

func createCommand(p *caller.Caller) *cli.Command {
	grants := &plan.Grants{}
	return &cli.Command{
		Name: "create", Usage: "build a sandbox and leave it ready for exec", ArgsUsage: "ID",
		Flags: append([]cli.Flag{
			flags.Policy(),
			&cli.StringFlag{
				Name: "owner", Usage: "end the sandbox when the process `PID` ends; none: only delete ends it " +
					"(default: the program that called this command; wrappers such as timeout do not count)",
			},
			flags.Keep(), flags.Record(),
		}, grants.Flags()...),
		Action: func(c *cli.Context) error { return create(p, c, *grants) },
	}
}

func create(p *caller.Caller, c *cli.Context, grants plan.Grants) error {
	id, err := flags.ID(c)
	if err == nil {
		err = container.CheckID(id)
	}
	if err != nil {
		return err
	}
	var o container.Options
	if o.Owner, err = ownerOf(p, c); err != nil {
		return err
	}
	if o.Record, err = p.HostDir(c, "record"); err != nil {
		return err
	}
	return p.WithStore(c, func(s *container.Store) error {
		trust := p.Trust(c)
		trust.Record = o.Record
		from := plan.Source{Name: c.String("policy"), Grants: grants, Trust: trust, Keep: c.Bool("keep")}
		if sb, _ := plan.FromPool(p, s, from, id, o); sb != nil {
			sb.Close()
			return nil
		}
		sb, _, err := plan.NewSandbox(p, s, from, id, o)
		if err != nil {
			return err
		}
		sb.Close()
		return nil
	})
}

func ownerOf(p *caller.Caller, c *cli.Context) (*owner.Owner, error) {
	switch text := c.String("owner"); text {
	case "":
		return owner.FindOwner(p.Args)
	case "none":
		return nil, nil
	default:
		pid, err := strconv.Atoi(text)
		if err != nil || pid <= 0 {
			return nil, fault.Usage(fmt.Sprintf("--owner %q is no process number", text), "a PID, or none")
		}
		return &owner.Owner{PID: pid}, nil
	}
}

func deleteCommand(p *caller.Caller) *cli.Command {
	return &cli.Command{
		Name: "delete", Usage: "kill every process of a sandbox and remove the sandbox", ArgsUsage: "ID",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "succeed if there is no such sandbox"},
			flags.Sign(),
		},
		Action: func(c *cli.Context) error {
			id, err := flags.ID(c)
			if err != nil {
				return err
			}
			key, err := flags.SigningKey(c)
			if err != nil {
				return err
			}
			return p.WithStore(c, func(s *container.Store) error {
				if key != nil {
					if err := s.CheckKey(id, c.String("sign")); err != nil {
						return err
					}
				}
				err := s.Delete(id, key)
				if err != nil && c.Bool("force") && caller.Describe(err).Code == fault.NotFound {
					return nil
				}
				return err
			})
		},
	}
}

func killCommand(p *caller.Caller) *cli.Command {
	return &cli.Command{
		Name: "kill", Usage: "send a signal to the programs that run in a sandbox", ArgsUsage: "ID [SIGNAL]",
		Description: "Sends SIGNAL, a name or a number (default: TERM), to the program of each exec. When a program ends, the processes\n" +
			"that it started end too. The sandbox stays; delete removes it.",
		Flags: []cli.Flag{&cli.StringFlag{Name: "exec", Usage: "send the signal only to the program of the detached exec `EXEC`"}},
		Action: func(c *cli.Context) error {
			args, err := flags.Arguments(c)
			if err != nil {
				return err
			}
			if len(args) < 1 || len(args) > 2 {
				return fault.Usage("name a sandbox and a signal", flags.Help(c))
			}
			sig, err := parseSignal(append(args, "")[1])
			if err != nil {
				return err
			}
			return p.WithSandbox(c, args[0], func(sb *container.Sandbox) error { return kill(p, c, sb, sig) })
		},
	}
}

func kill(p *caller.Caller, c *cli.Context, sb *container.Sandbox, sig unix.Signal) error {
	if c.IsSet("exec") && c.String("exec") == "" {
		return fault.Usage("--exec is empty", "name a detached exec")
	}
	var n int
	var err error
	where := "the sandbox"
	if exec := c.String("exec"); exec != "" {
		n, err = sb.KillExec(sig, exec)
		where = "the exec"
	} else {
		n, err = sb.Kill(sig)
	}
	if err == nil && n == 0 {
		p.Warn("no program runs in " + where)
	}
	return err
}

func parseSignal(text string) (unix.Signal, error) {
	if text == "" {
		return unix.SIGTERM, nil
	}
	if n, err := strconv.Atoi(text); err == nil && n >= 0 && n <= 64 {
		return unix.Signal(n), nil
	}
	name := strings.ToUpper(text)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	return 0, fault.Usage(fmt.Sprintf("unknown signal %q", text), "a name such as TERM, or a number")
}

func sweepCommand(p *caller.Caller) *cli.Command {
	return &cli.Command{
		Name: "sweep", Usage: "remove sandboxes whose owner is dead, with their leftovers",
		Action: func(c *cli.Context) error {
			if err := flags.None(c); err != nil {
				return err
			}
			return p.WithStore(c, func(s *container.Store) error {
				swept, err := s.Sweep()
				for _, id := range swept {
					fmt.Fprintln(p.Out, id)
				}
				return err
			})
		},
	}
}
