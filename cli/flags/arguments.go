package flags

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/units"
)

// Duration is the value of a flag, or 0 without the flag.
func Duration(c *cli.Context, name string) (time.Duration, error) {
	text := c.String(name)
	if text == "" && !c.IsSet(name) {
		return 0, nil
	}
	d, err := units.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fault.Usage(
			fmt.Sprintf("--%s %q is no duration above 0", name, text), `such as 90, 1.5s or 1m30s; a bare number is seconds`,
		)
	}
	return d, nil
}

// CommandAfter is the command after a sandbox's id. Flags may stand between the two.
func CommandAfter(c *cli.Context) ([]string, error) {
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

// Arguments are the arguments of a command that runs no program. Flags may follow them.
func Arguments(c *cli.Context) ([]string, error) {
	var args []string
	err := Each(c, func(arg string) { args = append(args, arg) })
	return args, err
}

// Each calls take with each argument. It sets a flag that follows an argument after that call.
func Each(c *cli.Context, take func(string)) error {
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
func flagError(c *cli.Context, err error) error { return Error(c, err, false) }
