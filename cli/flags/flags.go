// Package flags reads command lines: the flags that more than one command has, arguments that flags may follow, and the files that
// both name. It decides nothing. It imports no other package of cli.
package flags

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Error is the error of flags that the library cannot read. It names the nearest flag.
func Error(c *cli.Context, err error, _ bool) error {
	u := fault.Usage(err.Error(), Help(c))
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return u
	}
	var names []string
	flags := c.App.Flags
	if c.Command != nil && c.Command.Name != "" && c.Command.Name != c.App.Name {
		flags = c.Command.Flags
	}
	for _, f := range flags {
		if v, ok := f.(cli.VisibleFlag); ok && v.IsVisible() {
			names = append(names, f.Names()...)
		}
	}
	if near := policy.Nearest(strings.TrimPrefix(name, "-"), names); len(near) > 1 {
		u.Hint = fmt.Sprintf("did you mean --%s? %s", near, u.Hint)
	}
	return u
}

// Help is the hint to the help of a command.
func Help(c *cli.Context) string {
	if c.Command != nil && c.Command.Name != "" && c.Command.Name != c.App.Name {
		return "sandboxrun " + c.Command.Name + " --help"
	}
	return "sandboxrun --help"
}

// UnknownCommand is the error of a command that does not exist. It names the nearest one.
func UnknownCommand(commands []*cli.Command, parent, name string) error {
	u := fault.Usage(fmt.Sprintf("unknown command %q", parent+name), "sandboxrun "+parent+"--help")
	names := make([]string, 0, len(commands))
	for _, c := range commands {
		names = append(names, c.Name)
	}
	if near := policy.Nearest(name, names); near != "" {
		u.Hint = fmt.Sprintf("did you mean %q? sandboxrun %s--help lists the commands", near, parent)
	}
	return u
}

// None refuses arguments, because a flag without dashes must not look as if it had worked.
func None(c *cli.Context) error {
	if c.NArg() > 0 {
		return fault.Usage(fmt.Sprintf("unexpected argument %q", c.Args().First()), Help(c))
	}
	return nil
}

// ID returns the only argument of many commands. Flags may follow it.
func ID(c *cli.Context) (string, error) {
	if c.NArg() == 0 {
		return "", fault.Usage("the sandbox's id is missing", Help(c))
	}
	rest, err := CommandAfter(c)
	if err == nil && len(rest) > 0 {
		err = fault.Usage(fmt.Sprintf("unexpected argument %q", rest[0]), Help(c))
	}
	return c.Args().First(), err
}
