// Package run has the commands that run programs, and those that wait for detached ones: run, exec, logs, wait. It reads their flags,
// connects the caller's streams, terminal and signals to the program, and prints or writes the result.
//
// A policy becomes a sandbox in package policy, an exec is started by container. Here is what lies between those and the caller.
package run

import (
	"cmp"
	"crypto/rand"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/cli/plan"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// Commands are the commands of this package, for one caller, and what one run of them has read from the command line.
type Commands struct {
	*caller.Caller
	jsonResult    bool
	resultPrinted bool
	result        resultTo
	puts          [][2]string // --put: a path of the caller's, and one inside
	grants        plan.Grants
}

// New makes the commands. The caller's failures become results, where a result was asked for.
func New(c *caller.Caller) *Commands {
	p := &Commands{Caller: c}
	c.OnFailure = p.failed
	return p
}

func execFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "json", Usage: "print the result as one JSON object, with the output in it"},
		&cli.StringFlag{Name: "timeout", Usage: "kill the program and every process it started after `DURATION` (1m30s; a bare number is seconds; default and maximum: the policy's wall limit)"},
		&cli.StringFlag{Name: "memory", Usage: "kill the program when all its processes use more than `SIZE` of memory (256M; default and maximum: the policy's limit)"},
		&cli.IntFlag{Name: "pids", DefaultText: "the policy's limit", Usage: "let the program have at most `N` processes and threads, not more than the policy's limit"},
		&cli.StringSliceFlag{Name: "env", Usage: "set a variable: `NAME=VALUE`, or NAME for the caller's value; can be repeated"},
		&cli.StringSliceFlag{Name: "e", Usage: "the same as --env `NAME=VALUE`"}, // an alias could not be mixed with --env
		&cli.BoolFlag{Name: "tty", Aliases: []string{"t"}, Usage: "give the program its own terminal"},
		resultFlag(),
		&cli.StringFlag{Name: "output-dir", Usage: "also write the program's whole output to the new files stdout and stderr in `DIR`"},
		&cli.BoolFlag{Name: "translate", Usage: "replace paths of the host in the command, --cwd and the variables by their paths inside"},
		&cli.StringFlag{Name: "view", Usage: "show the program what [views.`NAME`] of the policy says, and hide what that denies"},
	}
}

// Run is the command run.
func (p *Commands) Run() *cli.Command {
	return &cli.Command{
		Name: "run", Usage: "run one program in a sandbox of its own", ArgsUsage: "[--] CMD [ARG...]",
		Description: "Builds a sandbox, runs the program in it and removes the sandbox. Passes standard input and signals on to the program.\n" +
			"Without --policy the program sees the system's programs and libraries, and may write the current directory.",
		Flags: slices.Concat([]cli.Flag{flags.Policy()}, p.grants.Flags(), execFlags(), carryFlags(), []cli.Flag{flags.Keep(), flags.Record(), flags.Sign()}),
		Action: func(c *cli.Context) error {
			p.jsonResult = c.Bool("json")
			return p.run(c)
		},
	}
}

func (p *Commands) run(c *cli.Context) error {
	claim := forkexec.TakeClaim()
	ended, err := p.takeEnded()
	if err != nil {
		return err
	}
	if err := p.wantResult(c); err != nil {
		return err
	}
	signals := p.catchSignals()
	defer signals.stop()
	req, err := p.request(c, c.Args().Slice())
	if err != nil {
		return err
	}
	if ended != nil {
		err := p.conclude(ended, req)
		if claim != nil && claim.Lost() {
			return errors.Join(err, p.remove(c, claim.ID))
		}
		return err
	}
	req.View.Name = c.String("view")
	p.attach(&req)
	o := container.Options{Owner: &owner.Owner{PID: os.Getpid()}, Once: true}
	if o.Record, err = p.HostDir(c, "record"); err != nil {
		return err
	}
	key, err := flags.SigningKey(c)
	if err != nil {
		return err
	}
	store, err := p.OpenStore(c)
	if err != nil {
		return err
	}
	defer store.Close()
	trust := p.Trust(c)
	trust.Record, trust.Output, trust.Key = o.Record, req.OutputDir, c.String("sign")
	from := plan.Source{Name: c.String("policy"), Workspace: true, Grants: p.grants, Env: req.Env, Trust: trust, Keep: c.Bool("keep")}
	sb, dir, err := p.sandbox(store, claim, from, o, req.Translate)
	if err != nil {
		return err
	}
	req.Dir = cmp.Or(req.Dir, dir)
	err = p.execute(sb, req, signals)
	if derr := sb.Delete(key); err == nil {
		err = derr
	}
	return err
}

// remove removes a sandbox that was taken from a pool which has ended.
func (p *Commands) remove(c *cli.Context, id string) error {
	store, err := p.OpenStore(c)
	if err != nil {
		return err
	}
	defer store.Close()
	sb, err := store.Open(id)
	if err != nil {
		return err
	}
	return sb.Delete(nil)
}

// attach gives the program the caller's input, terminal and directory, as far as they are asked for.
func (p *Commands) attach(req *container.Request) {
	if !p.jsonResult {
		req.Stdin = p.In
		if caller.IsTerminal(p.In) && caller.IsTerminal(p.Out.File) {
			req.Tty = caller.TerminalSize(p.In)
		}
	}
	if req.Translate {
		req.Dir = p.grants.TakeHostCwd()
	}
}

// shows reports whether a sandbox has the caller's directory: under its own name, or with --translate under any.
func (p *Commands) shows(sb *container.Sandbox, translate bool) bool {
	if translate {
		_, _, ok := sb.Names().Inside(p.Cwd, hostfs.ResolveSoFar)
		return ok
	}
	return sb.ShowsDir(p.Cwd)
}

// sandbox makes or claims the sandbox of one run, and says in which directory the program starts, if that is the caller's. A pool knows
// of that directory's own name alone.
func (p *Commands) sandbox(
	store *container.Store, claim *forkexec.Claim, from plan.Source, o container.Options, translate bool,
) (*container.Sandbox, string, error) {
	if claim != nil {
		sb, err := store.Open(claim.ID)
		return sb, claim.Dir, err
	}
	id := "run-" + strings.ToLower(rand.Text())
	if !translate {
		if sb, dir := plan.FromPool(p.Caller, store, from, id, o); sb != nil {
			return sb, dir, nil
		}
	}
	sb, d, err := plan.NewSandbox(p.Caller, store, from, id, o)
	if err == nil && d.StaysInPlace(p.Caller) && p.shows(sb, translate) {
		return sb, p.Cwd, nil
	}
	return sb, "", err
}
