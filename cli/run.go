package cli

import (
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/recording"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/spec"
)

func execFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "json", Usage: "print the result as one JSON object, with the output in it"},
		&cli.StringFlag{Name: "timeout", Usage: "kill the program and every process it started after `DURATION` (1m30s; a bare number is seconds; default: the policy's wall limit)"},
		&cli.StringFlag{Name: "memory", Usage: "kill the program when all its processes use more than `SIZE` of memory (256M; default and maximum: the policy's limit)"},
		&cli.IntFlag{Name: "pids", DefaultText: "the policy's limit", Usage: "let the program have at most `N` processes and threads, not more than the policy's limit"},
		&cli.StringSliceFlag{Name: "env", Usage: "set a variable: `NAME=VALUE`, or NAME for the caller's value; can be repeated"},
		&cli.StringSliceFlag{Name: "e", Usage: "the same as --env `NAME=VALUE`"}, // an alias could not be mixed with --env
		&cli.BoolFlag{Name: "tty", Aliases: []string{"t"}, Usage: "give the program its own terminal"},
		resultFlag(),
		&cli.StringFlag{Name: "output-dir", Usage: "also write the program's whole output to the new files stdout and stderr in `DIR`"},
		&cli.StringFlag{Name: "view", Hidden: true},
	}
}

// grantFlags are the flags that add to a policy, in the order of the command line.
func (p *program) grantFlags() []cli.Flag {
	usage := map[string]string{
		"read":       "show `PATH` read-only: adds to files.read; can be repeated",
		"write":      "let the program write `PATH`: adds to files.write; can be repeated",
		"bind":       "show SOURCE at TARGET: `SOURCE:TARGET[:rw]` adds to bind; can be repeated",
		"deny":       "hide `PATH` in spite of every grant: adds to files.deny; can be repeated",
		"allow-host": "let the program reach `HOST[:PORT]`: adds to network.allowed_hosts; can be repeated",
		"cwd":        "start in `DIR` inside (default: the policy's workdir)",
	}
	var flags []cli.Flag
	for _, name := range spec.FlagNames() {
		flags = append(flags, &cli.GenericFlag{Name: name, Value: &grantFlag{name, &p.grants}, Usage: usage[name]})
	}
	return flags
}

// grantFlag adds to the policy each time that it occurs.
type grantFlag struct {
	name string
	list *[]spec.Flag
}

// Set adds a value to the list.
func (f *grantFlag) Set(value string) error {
	if value != again {
		*f.list = append(*f.list, spec.Flag{Name: f.name, Value: value})
	}
	return nil
}

// String is for the library, which copies values through it.
func (f *grantFlag) String() string {
	if f.list == nil || !slices.ContainsFunc(*f.list, func(g spec.Flag) bool { return g.Name == f.name }) {
		return ""
	}
	return again
}

// later are flags of the command line's contract that this version does not support. They are refused, never ignored.
func later() []string { return []string{"view", "translate", "read"} }

func refuseLater(c *cli.Context) error {
	for _, name := range later() {
		if c.IsSet(name) && (name != "read" || c.Command.Name == "exec") {
			return &usage{fmt.Sprintf("--%s is not supported yet", name), "leave it out"}
		}
	}
	return nil
}

func (p *program) runCommand() *cli.Command {
	return &cli.Command{
		Name: "run", Usage: "run one program in a sandbox of its own", ArgsUsage: "[--] CMD [ARG...]",
		Description: "Builds a sandbox, runs the program in it and removes the sandbox. Passes standard input and signals on to the program.\n" +
			"Without --policy the program sees the system's programs and libraries, and may write the current directory.",
		Flags: slices.Concat([]cli.Flag{policyFlag()}, p.grantFlags(), execFlags(), carryFlags(), []cli.Flag{recordFlag(), signFlag()}),
		Action: func(c *cli.Context) error {
			p.jsonResult = c.Bool("json")
			return p.run(c)
		},
	}
}

func (p *program) run(c *cli.Context) error {
	if err := refuseLater(c); err != nil {
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
	if !p.jsonResult {
		req.Stdin = p.in
		if isTerminal(p.in) && isTerminal(p.out.f) {
			req.Tty = terminalSize(p.in)
		}
	}
	o := container.Options{Owner: &owner.Owner{PID: os.Getpid()}, Once: true}
	if o.Record, err = p.hostDir(c, "record"); err != nil {
		return err
	}
	key, err := p.signingKey(c)
	if err != nil {
		return err
	}
	store, err := p.store(c)
	if err != nil {
		return err
	}
	defer store.Close()
	trust := p.trust(c)
	trust.Record, trust.Output, trust.Key = o.Record, req.OutputDir, c.String("sign")
	id := "run-" + strings.ToLower(rand.Text())
	sb := p.fromPool(c, store, id, true, o.Owner, req.Env)
	if sb == nil {
		sb, err = p.newSandbox(store, request{c.String("policy"), true, req.Env, trust}, id, o)
	}
	if err != nil {
		return err
	}
	if p.staysInPlace && sb.ShowsDir(p.cwd) {
		req.Dir = p.cwd
	}
	err = p.execute(sb, req, signals)
	if derr := sb.Delete(key); err == nil {
		err = derr
	}
	return err
}

// request describes a sandbox to make: see loadPolicy and spec.Host.ExecEnv.
type request struct {
	policy    string
	workspace bool
	env       map[string]string
	trust     trust.Known
}

// newSandbox removes the leftovers of dead sandboxes, then builds a sandbox.
func (p *program) newSandbox(s *container.Store, r request, id string, o container.Options) (*container.Sandbox, error) {
	d, err := p.decide(r.policy, r.workspace, r.env, r.trust)
	if err != nil {
		return nil, err
	}
	if err := s.IsKept(d.host); err != nil {
		return nil, err
	}
	p.made = d.plan
	// A program starts in its caller's directory, if the view has it and the policy names no other.
	p.staysInPlace = p.cwdErr == nil && d.policy.Files.Workdir.Path == "" && d.policy.Files.Workspace == nil
	// A fault of another sandbox must not stop this one.
	if _, err := s.Sweep(); err != nil && describe(err).code == recording.Code {
		p.warn(err.Error())
	} else if err != nil {
		logrus.Warn(err)
	}
	if o.Record != "" {
		o.Versions = versions()
	}
	sb, err := s.Create(id, d.plan, o)
	if err != nil {
		return nil, err
	}
	for _, w := range sb.State().Warnings[len(d.plan.Warnings):] { // those found while it was built
		p.warn(w)
	}
	return sb, nil
}
