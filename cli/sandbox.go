package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/owner"
)

func (p *program) createCommand() *cli.Command {
	return &cli.Command{
		Name: "create", Usage: "build a sandbox and leave it ready for exec", ArgsUsage: "ID",
		Flags: append([]cli.Flag{
			policyFlag(),
			&cli.StringFlag{
				Name: "owner", Usage: "end the sandbox when the process `PID` ends; none: only delete ends it " +
					"(default: the program that called this command; wrappers such as timeout do not count)",
			},
			recordFlag(),
		}, p.grantFlags()...),
		Action: p.create,
	}
}

func (p *program) create(c *cli.Context) error {
	id, err := oneID(c)
	if err == nil {
		err = refuseLater(c)
	}
	if err == nil {
		err = container.CheckID(id)
	}
	if err != nil {
		return err
	}
	var o container.Options
	if o.Owner, err = p.owner(c); err != nil {
		return err
	}
	if o.Record, err = p.hostDir(c, "record"); err != nil {
		return err
	}
	return p.withStore(c, func(s *container.Store) error {
		if sb := p.fromPool(c, s, id, false, o.Owner, nil); sb != nil {
			sb.Close()
			return nil
		}
		trust := p.trust(c)
		trust.Record = o.Record
		sb, err := p.newSandbox(s, request{policy: c.String("policy"), trust: trust}, id, o)
		if err != nil {
			return err
		}
		sb.Close()
		return nil
	})
}

func (p *program) owner(c *cli.Context) (*owner.Owner, error) {
	switch text := c.String("owner"); text {
	case "":
		return owner.FindOwner(p.args)
	case "none":
		return nil, nil
	default:
		pid, err := strconv.Atoi(text)
		if err != nil || pid <= 0 {
			return nil, &usage{fmt.Sprintf("--owner %q is no process number", text), "a PID, or none"}
		}
		return &owner.Owner{PID: pid}, nil
	}
}

func (p *program) deleteCommand() *cli.Command {
	return &cli.Command{
		Name: "delete", Usage: "kill every process of a sandbox and remove the sandbox", ArgsUsage: "ID",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "succeed if there is no such sandbox"},
			signFlag(),
		},
		Action: func(c *cli.Context) error {
			id, err := oneID(c)
			if err != nil {
				return err
			}
			key, err := p.signingKey(c)
			if err != nil {
				return err
			}
			return p.withStore(c, func(s *container.Store) error {
				if key != nil {
					if err := s.KeyIsKept(id, c.String("sign")); err != nil {
						return err
					}
				}
				err := s.Delete(id, key)
				if err != nil && c.Bool("force") && describe(err).code == "not_found" {
					return nil
				}
				return err
			})
		},
	}
}

func (p *program) withStore(c *cli.Context, use func(*container.Store) error) error {
	store, err := p.store(c)
	if err != nil {
		return err
	}
	defer store.Close()
	return use(store)
}

func (p *program) withSandbox(c *cli.Context, id string, use func(*container.Sandbox) error) error {
	return p.withStore(c, func(s *container.Store) error {
		sb, err := s.Open(id)
		if err != nil {
			return err
		}
		defer sb.Close()
		return use(sb)
	})
}

func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "print JSON"} }

func (p *program) listCommand() *cli.Command {
	return &cli.Command{
		Name: "list", Usage: "list the caller's sandboxes", Flags: []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			return p.withStore(c, func(s *container.Store) error {
				list, err := s.List()
				if err != nil {
					return err
				}
				if c.Bool("json") {
					p.printJSON(list)
					return nil
				}
				p.table("ID\tSTATUS\tPID\tAGE\tOWNER\tPOLICY", list)
				return nil
			})
		},
	}
}

func (p *program) table(head string, list []container.Info) {
	w := tabwriter.NewWriter(p.out, 0, 8, 2, ' ', 0)
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

func (p *program) psCommand() *cli.Command {
	return &cli.Command{
		Name: "ps", Usage: "list the processes of the programs in a sandbox", ArgsUsage: "ID", Flags: []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			id, err := oneID(c)
			if err != nil {
				return err
			}
			return p.withSandbox(c, id, func(sb *container.Sandbox) error {
				list, err := sb.Processes()
				if err != nil {
					return err
				}
				if c.Bool("json") {
					p.printJSON(list)
					return nil
				}
				w := tabwriter.NewWriter(p.out, 0, 8, 2, ' ', 0)
				fmt.Fprintln(w, "PID\tPPID\tINSIDE\tEXEC\tSTATE\tCOMMAND")
				for _, i := range list {
					exec := cmp.Or(i.Exec, "-")
					fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%s\t%s\n", i.PID, i.PPID, i.Inside, exec, i.State, printable(i.Command))
				}
				return w.Flush()
			})
		},
	}
}

// printable quotes a program's name that has control characters, so that it cannot control the user's terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

func (p *program) killCommand() *cli.Command {
	return &cli.Command{
		Name: "kill", Usage: "send a signal to the programs that run in a sandbox", ArgsUsage: "ID [SIGNAL]",
		Description: "Sends SIGNAL, a name or a number (default: TERM), to the program of each exec. When a program ends, the processes\n" +
			"that it started end too. The sandbox stays; delete removes it.",
		Flags: []cli.Flag{&cli.StringFlag{Name: "exec", Usage: "send the signal only to the program of the detached exec `EXEC`"}},
		Action: func(c *cli.Context) error {
			args, err := arguments(c)
			if err != nil {
				return err
			}
			if len(args) < 1 || len(args) > 2 {
				return &usage{"name a sandbox and a signal", helpHint(c)}
			}
			sig, err := parseSignal(append(args, "")[1])
			if err != nil {
				return err
			}
			return p.withSandbox(c, args[0], func(sb *container.Sandbox) error { return p.kill(c, sb, sig) })
		},
	}
}

func (p *program) kill(c *cli.Context, sb *container.Sandbox, sig unix.Signal) error {
	if c.IsSet("exec") && c.String("exec") == "" {
		return &usage{"--exec is empty", "name a detached exec"}
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
		p.warn("no program runs in " + where)
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
	return 0, &usage{fmt.Sprintf("unknown signal %q", text), "a name such as TERM, or a number"}
}

func (p *program) sweepCommand() *cli.Command {
	return &cli.Command{
		Name: "sweep", Usage: "remove sandboxes whose owner is dead, with their leftovers",
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			return p.withStore(c, func(s *container.Store) error {
				swept, err := s.Sweep()
				for _, id := range swept {
					fmt.Fprintln(p.out, id)
				}
				return err
			})
		},
	}
}
