package run

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/container/stream"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/spec/policy"
	"github.com/sandboxrun/sandboxrun/units"
)

// Exec is the command exec.
func (p *Commands) Exec() *cli.Command {
	return &cli.Command{
		Name: "exec", Usage: "run a program in a sandbox that exists", ArgsUsage: "ID [--] CMD [ARG...]",
		Description: "The program sees the files that earlier execs left, and none of their processes. All its processes end with it.\n" +
			"Its standard input is empty without --stdin and --tty.",
		Flags: append(
			slices.Concat(execFlags(), carryFlags(), p.grants.ViewFlags()),
			&cli.StringFlag{Name: "cwd", Aliases: []string{"C"}, Usage: "start in `DIR` inside, relative to the policy's working directory (default: that directory)"},
			&cli.BoolFlag{Name: "stdin", Aliases: []string{"i"}, Usage: "pass standard input on to the program"},
			&cli.BoolFlag{Name: "detach", Aliases: []string{"d"}, Usage: "print the exec's name when the program has started, and leave it running"},
		),
		Action: func(c *cli.Context) error {
			p.jsonResult = c.Bool("json")
			return p.exec(c)
		},
	}
}

func (p *Commands) exec(c *cli.Context) error {
	if c.NArg() == 0 {
		return fault.Usage("the sandbox's id is missing", flags.Help(c))
	}
	command, err := flags.CommandAfter(c)
	if err != nil {
		return err
	}
	p.jsonResult = c.Bool("json")
	if err := refuseAttached(c); err != nil {
		return err
	}
	ended, err := p.takeEnded()
	if err != nil {
		return err
	}
	if err := p.wantResult(c); err != nil {
		return err
	}
	signals := p.catchSignals()
	defer signals.stop()
	req, err := p.request(c, command)
	if err != nil {
		return err
	}
	req.Dir = c.String("cwd")
	if req.View, err = p.grants.View(p.Caller, c.String("view")); err != nil {
		return err
	}
	if ended != nil {
		return p.conclude(ended, req)
	}
	if c.Bool("detach") {
		signals.stop()
		return p.detach(c, c.Args().First(), req)
	}
	if c.Bool("stdin") || req.Tty != nil {
		req.Stdin = p.In
	}
	store, err := p.OpenStore(c)
	if err != nil {
		return err
	}
	defer store.Close()
	sb, err := store.Open(c.Args().First())
	if err != nil {
		return err
	}
	defer sb.Close()
	return p.execute(sb, req, signals)
}

// request reads the flags that run and exec share.
func (p *Commands) request(c *cli.Context, command []string) (container.Request, error) {
	req := container.Request{Args: command, Caller: p.Env, Translate: c.Bool("translate")}
	if len(command) == 0 {
		return req, fault.Usage("the command is missing", flags.Help(c))
	}
	var err error
	if req.Timeout, err = flags.Duration(c, "timeout"); err != nil {
		return req, err
	}
	if req.OutputDir, err = p.HostDir(c, "output-dir"); err != nil {
		return req, err
	}
	if text := c.String("memory"); text != "" {
		n, err := units.ParseSize(text)
		if err != nil {
			return req, fault.Usage(fmt.Sprintf("--memory %q is no size", text), "bytes, or a whole number with K, M, G or T")
		}
		if err := policy.CheckMemory(n); err != nil {
			return req, fault.Usage(fmt.Sprintf("--memory %q: %v", text, err), caller.Describe(err).Hint)
		}
		req.Memory = n
	}
	if c.IsSet("pids") {
		if req.Pids = int64(c.Int("pids")); req.Pids < 1 {
			return req, fault.Usage(fmt.Sprintf("--pids %d: a program is at least one process", c.Int("pids")), "")
		}
	}
	if req.Env, err = p.variables(c); err != nil {
		return req, err
	}
	if err = p.carry(c, &req); err != nil {
		return req, err
	}
	if c.Bool("tty") {
		req.Tty = caller.TerminalSize(p.In)
	}
	if !p.jsonResult {
		req.Stdout, req.Stderr, req.OneOutput = writer(p.Out), writer(p.ErrOut), caller.OneFile(p.Out, p.ErrOut)
	}
	return req, nil
}

func writer(o *caller.Output) io.Writer {
	if o.Closed {
		return stream.Closed{}
	}
	return o
}

// variables returns the variables of --env.
func (p *Commands) variables(c *cli.Context) (map[string]string, error) {
	env := map[string]string{}
	for _, kv := range append(c.StringSlice("env"), c.StringSlice("e")...) {
		name, value, given := strings.Cut(kv, "=")
		if !given {
			value, given = p.Env[name]
		}
		if name == "" || !given {
			return nil, fault.Usage(fmt.Sprintf("--env %q: not NAME=VALUE, nor a variable of yours", kv), "")
		}
		env[name] = value
	}
	return env, nil
}

// execute runs the program and reports its end.
func (p *Commands) execute(sb *container.Sandbox, req container.Request, signals *signals) error {
	if err := p.openResult(sb); err != nil {
		return err
	}
	if err := p.readPuts(sb, &req); err != nil {
		return err
	}
	if req.Tty != nil {
		req.TtySettings = p.terminalSettings()
	}
	term := p.useTerminal(&req)
	defer term.end()
	if term.err != nil {
		return fmt.Errorf("set the terminal to raw mode: %w", term.err)
	}
	req.Cancel = &container.Cancel{}
	started := signals.cancel(req.Cancel)
	running, err := sb.Start(req)
	started()
	if err != nil {
		return err
	}
	p.Timings.Mark("start of the program")
	signals.forward(running, term)
	result, err := running.Wait()
	p.Timings.Mark("program")
	term.end()
	if err != nil {
		return err
	}
	p.finish(result)
	return nil
}

// takeEnded gives an exec that was run before we started.
func (p *Commands) takeEnded() (*container.Ended, error) {
	ended, err := container.TakeEnded()
	if ended != nil {
		p.result.done, p.resultPrinted = ended.ResultGiven, ended.Printed
	}
	return ended, err
}

// conclude says how an exec has ended that was run before we started.
func (p *Commands) conclude(e *container.Ended, req container.Request) error {
	p.Out.Fail(e.Failed(0))
	p.ErrOut.Fail(e.Failed(1))
	p.result.file = e.File(p.result.path)
	result, err := e.Result(req)
	if err != nil {
		return err
	}
	p.finish(result)
	p.resultLost(e.ResultFailed)
	return nil
}

func (p *Commands) finish(r *result.Result) {
	if err := p.Out.Failed(); err != nil && r.Error == nil {
		r.Error = &result.Error{Code: fault.OutputFailed, Message: "write standard output: " + caller.Reason(err)}
	}
	p.Status = r.ExitCode
	if r.Error != nil && p.Status == 0 && r.Error.Code != fault.OutputFailed { // lostOutput handles a lost output
		p.Status = fault.ExitLauncher
	}
	for _, w := range r.Warnings {
		p.Warn(w)
	}
	p.sayCollected(r)
	p.writeResult(r)
	switch {
	case p.jsonResult && p.resultPrinted:
	case p.jsonResult:
		p.printResult(r)
	case r.Error != nil && r.Error.Code == fault.OutputFailed:
	case r.Error != nil:
		p.Complain(r.Error)
	default:
		if message := exceeded(r); message != "" {
			p.Complain(&result.Error{Code: r.Outcome, Message: message})
		}
	}
}

// exceeded says which limit a program has met.
func exceeded(r *result.Result) string {
	limit := func(name string) float64 {
		for _, l := range r.Limits {
			if l.Name == name {
				return l.Value
			}
		}
		return 0
	}
	switch r.Outcome {
	case result.Timeout:
		return fmt.Sprintf("the program was ended after %.1f s", r.Usage.WallMS/1000)
	case result.IdleTimeout:
		return fmt.Sprintf("the program was ended: it wrote nothing for %.6g s", limit("idle"))
	case result.CPUExceeded:
		return fmt.Sprintf("the program was ended: it used more than %.6g s of processor time", limit("cpu"))
	case result.MemoryExceeded:
		return fmt.Sprintf("the program was ended: it used more than %s of memory", units.Size(int64(limit("memory"))))
	case result.PidsExceeded:
		if r.Killed {
			return fmt.Sprintf("the program was ended: it had more than %.0f processes", limit("pids"))
		}
		return fmt.Sprintf("the program wanted more than %.0f processes", limit("pids"))
	case result.DiskExceeded:
		if r.Killed {
			return fmt.Sprintf("the program was ended: more than %s was written to writable directories", units.Size(int64(limit("disk"))))
		}
		return fmt.Sprintf("more than %s was written to writable directories", units.Size(int64(limit("disk"))))
	case result.OutputExceeded:
		return "the program was ended: it wrote more than limits.output"
	case result.FileExceeded:
		return fmt.Sprintf("the program wanted a file of more than %s", units.Size(int64(limit("file"))))
	}
	return ""
}
