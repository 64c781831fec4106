package cli

import (
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/rootfs"
)

func (p *program) pathCommand() *cli.Command {
	return &cli.Command{
		Name: "path", Usage: "translate paths of the host to paths inside, or back", ArgsUsage: "[ID] PATH...",
		Description: "Prints where each PATH is inside (--inside), or which path of the host it stands for (--outside), one on a line. Nothing\n" +
			"needs to be there yet. With --policy there is no ID: it answers for a sandbox that create would make.\n" +
			"Exit status: 0 if every PATH has a name on the other side, else 1.",
		Flags: append([]cli.Flag{
			policyFlag(), jsonFlag(),
			&cli.BoolFlag{Name: "inside", Usage: "print where paths of the host are inside"},
			&cli.BoolFlag{Name: "outside", Usage: "print which paths of the host paths inside stand for"},
		}, p.grantFlags()...),
		Action: p.path,
	}
}

func (p *program) path(c *cli.Context) error {
	args, err := arguments(c)
	if err != nil {
		return err
	}
	if c.Bool("inside") == c.Bool("outside") {
		return &usage{"say --inside or --outside", helpHint(c)}
	}
	if c.IsSet("policy") {
		if len(args) == 0 {
			return &usage{"name a path", helpHint(c)}
		}
		plan, err := p.plan(c.String("policy"), false, nil, p.trust(c))
		if err != nil {
			return err
		}
		return p.paths(c, args, plan.View.Shown(), plan.Exec.Dir)
	}
	switch {
	case len(args) < 2:
		return &usage{"name a sandbox and a path, or a policy with --policy", helpHint(c)}
	case len(p.grants) > 0:
		return &usage{"--" + p.grants[0].Name + " adds to a policy, and a sandbox that exists has its own", "name the policy: --policy"}
	}
	return p.withSandbox(c, args[0], func(sb *container.Sandbox) error {
		return p.paths(c, args[1:], sb.Names(), sb.State().Launch.Dir)
	})
}

func (p *program) paths(c *cli.Context, args []string, names rootfs.Names, workdir string) error {
	answers := make([]translated, 0, len(args))
	for _, name := range args {
		var a translated
		if c.Bool("outside") {
			a = pathOutside(names, name, workdir)
		} else {
			host, err := p.absolute(name)
			if err != nil {
				return err
			}
			a = pathInside(names, host)
		}
		a.Asked = name
		answers = append(answers, a)
	}
	for _, a := range answers {
		switch {
		case !a.Shown:
			p.status = exitRefused
			if !c.Bool("json") {
				p.warn(a.missing(c.Bool("outside")))
			}
		case c.Bool("json"):
		case c.Bool("outside"):
			fmt.Fprintln(p.out, a.Host)
		default:
			fmt.Fprintln(p.out, a.Inside)
		}
	}
	if c.Bool("json") {
		p.printJSON(answers)
	}
	return nil
}

// translated is a path with its name on the other side.
type translated struct {
	Asked    string `json:"asked,omitempty"`
	Shown    bool   `json:"shown"`
	Inside   string `json:"inside,omitempty"`
	Host     string `json:"host,omitempty"`
	Writable bool   `json:"writable,omitempty"`
}

func (a translated) missing(outside bool) string {
	if outside {
		return fmt.Sprintf("%s stands for no path of the host", plain(a.Asked))
	}
	return fmt.Sprintf("%s is not inside: sandboxrun explain says why", plain(a.Asked))
}

func pathInside(names rootfs.Names, host string) translated {
	inside, writable, ok := names.Inside(host, container.ResolveSoFar)
	if !ok {
		return translated{}
	}
	back, _, _ := names.HostOf(inside) // without symlinks
	return translated{Shown: true, Inside: inside, Host: back, Writable: writable}
}

func pathOutside(names rootfs.Names, inside, workdir string) translated {
	if !filepath.IsAbs(inside) {
		inside = filepath.Join(workdir, inside)
	}
	inside = filepath.Clean(inside)
	host, writable, ok := names.HostOf(inside)
	if !ok {
		return translated{}
	}
	return translated{Shown: true, Inside: inside, Host: host, Writable: writable}
}
