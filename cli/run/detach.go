package run

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/fault"
)

// refuseAttached refuses flags that need a caller who waits, because a detached exec has none.
func refuseAttached(c *cli.Context) error {
	for _, name := range []string{"stdin", "tty"} {
		if c.Bool("detach") && c.Bool(name) {
			return fault.Usage(
				fmt.Sprintf("--%s and --detach cannot be combined", name),
				"a detached program reads nothing; let it read a file, and see what it writes with sandboxrun logs",
			)
		}
	}
	if c.Bool("detach") && c.IsSet("put") {
		return fault.Usage("--put and --detach cannot be combined", "sandboxrun put")
	}
	if c.Bool("detach") && c.IsSet("result") {
		return fault.Usage("--result and --detach cannot be combined", "the exec has no result yet: sandboxrun wait --json ID EXEC")
	}
	return nil
}

// detach starts an exec that continues after this command.
func (p *Commands) detach(c *cli.Context, id string, req container.Request) error {
	return p.WithStore(c, func(s *container.Store) error {
		name, err := s.Detach(id, req)
		if err != nil {
			return err
		}
		if p.jsonResult {
			p.printResult(struct {
				Sandbox string `json:"sandbox"`
				Exec    string `json:"exec"`
			}{id, name})
			return nil
		}
		fmt.Fprintln(p.Out, name)
		return nil
	})
}
