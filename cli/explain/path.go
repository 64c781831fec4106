package explain

import (
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/cli/plan"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// PathCommand is the command path.
func PathCommand(p *caller.Caller) *cli.Command {
	grants := &plan.Grants{}
	return &cli.Command{
		Name: "path", Usage: "translate paths of the host to paths inside, or back", ArgsUsage: "[ID] PATH...",
		Description: "Prints where each PATH is inside (--inside), or which path of the host it stands for (--outside), one on a line. Nothing\n" +
			"needs to be there yet. With --policy there is no ID: it answers for a sandbox that create would make.\n" +
			"Exit status: 0 if every PATH has a name on the other side, else 1.",
		Flags: append([]cli.Flag{
			flags.Policy(), flags.JSON(),
			&cli.BoolFlag{Name: "inside", Usage: "print where paths of the host are inside"},
			&cli.BoolFlag{Name: "outside", Usage: "print which paths of the host paths inside stand for"},
		}, grants.Flags()...),
		Action: func(c *cli.Context) error { return pathOf(p, c, *grants) },
	}
}

func pathOf(p *caller.Caller, c *cli.Context, grants plan.Grants) error {
	args, err := flags.Arguments(c)
	if err != nil {
		return err
	}
	if c.Bool("inside") == c.Bool("outside") {
		return fault.Usage("say --inside or --outside", flags.Help(c))
	}
	if c.IsSet("policy") {
		if len(args) == 0 {
			return fault.Usage("name a path", flags.Help(c))
		}
		d, err := plan.Decide(p, plan.Source{Name: c.String("policy"), Grants: grants, Trust: p.Trust(c)})
		if err != nil {
			return err
		}
		return paths(p, c, args, d.Plan.View.Shown(), d.Plan.Exec.Dir)
	}
	switch {
	case len(args) < 2:
		return fault.Usage("name a sandbox and a path, or a policy with --policy", flags.Help(c))
	case len(grants) > 0:
		return fault.Usage("--"+grants[0].Name+" adds to a policy, and a sandbox that exists has its own", "name the policy: --policy")
	}
	return p.WithSandbox(c, args[0], func(sb *container.Sandbox) error {
		return paths(p, c, args[1:], sb.Names(), sb.State().Launch.Dir)
	})
}

func paths(p *caller.Caller, c *cli.Context, args []string, names rootfs.Names, workdir string) error {
	answers := make([]Translated, 0, len(args))
	for _, name := range args {
		var a Translated
		if c.Bool("outside") {
			a = PathOutside(names, name, workdir)
		} else {
			host, err := absolute(p, name)
			if err != nil {
				return err
			}
			a = PathInside(names, host, hostfs.ResolveSoFar)
		}
		a.Asked = name
		answers = append(answers, a)
	}
	for _, a := range answers {
		switch {
		case !a.Shown:
			p.Status = fault.ExitRefused
			if !c.Bool("json") {
				p.Warn(a.missing(c.Bool("outside")))
			}
		case c.Bool("json"):
		case c.Bool("outside"):
			fmt.Fprintln(p.Out, a.Host)
		default:
			fmt.Fprintln(p.Out, a.Inside)
		}
	}
	if c.Bool("json") {
		p.PrintJSON(answers)
	}
	return nil
}

// Translated is a path with its name on the other side.
type Translated struct {
	Asked    string `json:"asked,omitempty"`
	Shown    bool   `json:"shown"`
	Inside   string `json:"inside,omitempty"`
	Host     string `json:"host,omitempty"`
	Writable bool   `json:"writable,omitempty"`
}

func (a Translated) missing(outside bool) string {
	if outside {
		return fmt.Sprintf("%s stands for no path of the host", pathname.Printable(a.Asked))
	}
	return fmt.Sprintf("%s is not inside: sandboxrun explain says why", pathname.Printable(a.Asked))
}

// PathInside says where a path of the host is inside.
func PathInside(names rootfs.Names, host string, follow func(string) string) Translated {
	inside, writable, ok := names.Inside(host, follow)
	if !ok {
		return Translated{}
	}
	back, _, _ := names.HostOf(inside) // without symlinks
	return Translated{Shown: true, Inside: inside, Host: back, Writable: writable}
}

// PathOutside says which path of the host a path inside stands for; a relative one is below workdir.
func PathOutside(names rootfs.Names, inside, workdir string) Translated {
	if !filepath.IsAbs(inside) {
		inside = filepath.Join(workdir, inside)
	}
	inside = filepath.Clean(inside)
	host, writable, ok := names.HostOf(inside)
	if !ok {
		return Translated{}
	}
	return Translated{Shown: true, Inside: inside, Host: host, Writable: writable}
}
