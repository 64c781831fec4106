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
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/spec"
)

func execFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "json", Usage: "print the result as one JSON object, with the output in it"},
		&cli.StringFlag{Name: "timeout", Usage: "end the program and all that it started after `DURATION` (1m30s; a bare number is seconds)"},
		&cli.StringFlag{Name: "memory", Usage: "end the program when all it started uses more than `SIZE` of memory (256M); at most the policy's"},
		&cli.IntFlag{Name: "pids", Usage: "let the program have at most `N` processes and threads; at most the policy's"},
		&cli.StringSliceFlag{Name: "env", Usage: "set a variable: `NAME=VALUE`, or NAME to take the caller's"},
		&cli.StringSliceFlag{Name: "e", Usage: "the same as --env `NAME=VALUE`"}, // as an alias it could not be mixed with it
		&cli.BoolFlag{Name: "tty", Aliases: []string{"t"}, Usage: "give the program a terminal of its own"},
		resultFlag(),
		&cli.StringFlag{Name: "output-dir", Usage: "keep the whole of standard output and error in `DIR` too, as new files stdout and stderr"},
		&cli.StringFlag{Name: "view", Hidden: true},
	}
}

// grantFlags are those that add to a policy. They keep the order in which they are given.
func (p *program) grantFlags() []cli.Flag {
	usage := map[string]string{
		"read":       "show `PATH` read-only, as files.read of a policy does; may be given again",
		"write":      "let the program write in `PATH`, as files.write does; may be given again",
		"bind":       "show `SOURCE:TARGET[:rw]` under a name of its own, as a [[bind]] does; may be given again",
		"deny":       "hide `PATH`, as files.deny does; it wins over every grant; may be given again",
		"allow-host": "let the program reach `HOST[:PORT]`, as network.allowed_hosts does; may be given again",
		"cwd":        "start in `DIR`, as workdir of a policy does",
	}
	var flags []cli.Flag
	for _, name := range spec.FlagNames() {
		flags = append(flags, &cli.GenericFlag{Name: name, Value: &grantFlag{name, &p.grants}, Usage: usage[name]})
	}
	return flags
}

// grantFlag adds to the policy whenever it is given.
type grantFlag struct {
	name string
	list *[]spec.Flag
}

// Set adds to the list.
func (f *grantFlag) Set(value string) error {
	if value != again {
		*f.list = append(*f.list, spec.Flag{Name: f.name, Value: value})
	}
	return nil
}

// String is for the library, which copies values.
func (f *grantFlag) String() string {
	if f.list == nil || !slices.ContainsFunc(*f.list, func(g spec.Flag) bool { return g.Name == f.name }) {
		return ""
	}
	return again
}

// later are flags of the command line's contract whose work is still to be done. They are refused, never ignored.
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
		Description: "Builds a sandbox, runs the program in it and removes the sandbox. Standard input and signals are passed on.\n" +
			"Without --policy the program sees the system's programs and libraries, and may write in the current directory.",
		Flags: slices.Concat([]cli.Flag{policyFlag()}, p.grantFlags(), execFlags(), []cli.Flag{recordFlag(), signFlag()}),
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
	o := container.Options{Owner: &owner.Owner{PID: os.Getpid()}}
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
	sb, err := p.newSandbox(store, request{c.String("policy"), true, req.Env, trust}, "run-"+strings.ToLower(rand.Text()), o)
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

// request is what a sandbox is to be made of: see loadPolicy and spec.Host.ExecEnv.
type request struct {
	policy    string
	workspace bool
	env       map[string]string
	trust     trust.Known
}

// newSandbox builds a sandbox of a policy, once what dead ones have left is out of the way.
func (p *program) newSandbox(s *container.Store, r request, id string, o container.Options) (*container.Sandbox, error) {
	d, err := p.decide(r.policy, r.workspace, r.env, r.trust)
	if err != nil {
		return nil, err
	}
	if err := s.IsKept(d.host); err != nil {
		return nil, err
	}
	// A program starts where its caller is, if the policy shows that and says nothing else.
	p.staysInPlace = p.cwdErr == nil && d.policy.Files.Workdir.Path == "" && d.policy.Files.Workspace == nil
	// What is wrong with another sandbox is no reason not to make this one.
	if _, err := s.Sweep(); err != nil && describe(err).code == container.CodeRecord {
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
	for _, w := range sb.State().Warnings[len(d.plan.Warnings):] { // of what was found only then
		p.warn(w)
	}
	return sb, nil
}
