package caller

import (
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/fault"
)

// StatePath is the state directory, absolute.
func (c *Caller) StatePath(ctx *cli.Context) string {
	dir := ctx.String("root")
	if dir == "" {
		dir = c.Env["SANDBOXRUN_ROOT"]
	}
	return trust.StatePath(dir, c.Env["XDG_RUNTIME_DIR"], os.Geteuid())
}

// Trust has the trusted files of every command; see trust.Known.
func (c *Caller) Trust(ctx *cli.Context) trust.Known {
	return trust.Known{State: c.StatePath(ctx)}
}

// OpenStore opens the state directory.
func (c *Caller) OpenStore(ctx *cli.Context) (*container.Store, error) {
	store, err := container.OpenStore(c.StatePath(ctx))
	if err == nil {
		store.Phase = c.Timings.Mark
	}
	return store, err
}

// WithStore opens the state directory for a function.
func (c *Caller) WithStore(ctx *cli.Context, use func(*container.Store) error) error {
	store, err := c.OpenStore(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	return use(store)
}

// WithSandbox opens a sandbox for a function.
func (c *Caller) WithSandbox(ctx *cli.Context, id string, use func(*container.Sandbox) error) error {
	return c.WithStore(ctx, func(s *container.Store) error {
		sb, err := s.Open(id)
		if err != nil {
			return err
		}
		defer sb.Close()
		return use(sb)
	})
}

// HostDir makes the directory of a flag absolute, because the processes that use it have another working directory.
func (c *Caller) HostDir(ctx *cli.Context, flag string) (string, error) {
	dir := ctx.String(flag)
	switch {
	case !ctx.IsSet(flag):
		return dir, nil
	case dir == "":
		return "", fault.Usage("--"+flag+" is empty", "name a directory")
	}
	return c.OnHost("--"+flag, dir)
}

// OnHost makes a path of the caller's absolute. It does not clean the path, because ".." after a symlink is another directory. what is
// what has the path, for the error.
func (c *Caller) OnHost(what, name string) (string, error) {
	switch {
	case name == "":
		return "", fault.Usage(what+": the path on the host is empty", "")
	case filepath.IsAbs(name):
		return name, nil
	case c.CwdErr != nil:
		return "", fault.Usage(c.NoCwd(), "give "+what+" an absolute path")
	}
	return c.Cwd + "/" + name, nil
}
