// Package cli is the command line: the list of commands, what every one of them begins and ends with, and the commands that need
// little. The others are in packages below, by what they do:
//
//	cli ─▶ run, serve ─▶ files, policy, inspect, explain ─▶ caller, flags, show, version
//
// None of them makes a decision about a sandbox: spec decides, container acts. What a command knows of its caller, and every way to
// answer, is in caller; flags reads command lines; show formats what people read.
package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/cli/bench"
	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/explain"
	"github.com/sandboxrun/sandboxrun/cli/files"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/cli/inspect"
	"github.com/sandboxrun/sandboxrun/cli/plan"
	"github.com/sandboxrun/sandboxrun/cli/run"
	"github.com/sandboxrun/sandboxrun/cli/serve"
	"github.com/sandboxrun/sandboxrun/cli/version"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/relayproc"
	"github.com/sandboxrun/sandboxrun/fault"
)

// memoryLimit is the heap size, in bytes, at which the garbage collector runs after all, because stored output may be large.
const memoryLimit = 64 << 20

// umask is the umask of the launcher's files. Programs have the policy's.
const umask = 0o022

// Main runs the command and returns its exit status.
func Main(args, environ []string, stdin, stdout, stderr *os.File) int {
	if !stays(args) {
		runtime.UnlockOSThread() // a goroutine that has to change threads all the time is slow
	}
	p := caller.New(args, environ, stdin, stdout, stderr, container.ClosedStreams())
	if p.CwdErr != nil {
		// The caller's directory was deleted. Only relative paths then fail.
		if err := os.Chdir("/"); err != nil {
			return p.Report(err)
		}
	}
	// A command allocates a few megabytes at most before its program runs; the garbage collector would cost more than they do.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryLimit)
	signal.Ignore(unix.SIGPIPE) // a write to a closed standard output is then an error, because the launcher has to remove the sandbox
	signal.Ignore(unix.SIGXFSZ) // a write beyond the limit is then an error, not a signal
	// The caller's umask must not make directories of a sandbox unsearchable. (opencontainers/runc#1359)
	unix.Umask(umask)
	if completesProgram(args) {
		return 0
	}
	if err := caller.EnoughFiles(); err != nil {
		return p.Report(err)
	}
	switch {
	case isOurs(p, container.MonitorCommand):
		return monitor()
	case isOurs(p, relayproc.Command):
		return relay()
	case answersModes(p):
		return modes()
	}
	err := app(p).Run(args)
	status := p.Status
	if err != nil && (p.Out.Failed() == nil || !errors.Is(err, p.Out.Failed())) {
		status = p.Report(err)
	}
	p.Timings.Print(p.Err)
	return p.LostOutput(status)
}

// stays reports whether a command may make many sandboxes. libcontainer enters each one's mount namespace with a thread that ends
// afterwards. The first thread of a process cannot end: it would keep the namespace, and all that is in its memory. So main keeps that thread.
func stays(args []string) bool {
	return slices.Contains(args, "serve") || slices.Contains(args, "pool")
}

// completesProgram reports whether a shell completes the program's command line after "--". The library would run the program.
func completesProgram(args []string) bool {
	last := len(args) - 1
	return last > 0 && args[last] == "--generate-bash-completion" && slices.Contains(args[:last], "--")
}

func app(p *caller.Caller) *cli.App {
	programs, look := run.New(p), &inspect.Commands{Caller: p}
	app := &cli.App{
		Name:  "sandboxrun",
		Usage: "run a program so that it sees only what a policy grants",
		Description: "run    runs one program in a sandbox of its own.\n" +
			"create builds a sandbox that stays; exec runs programs in it; delete removes it.\n" +
			"The program sees the files, variables and hosts that the policy names, and nothing else of the machine.\n" +
			"Exit status: the program's; 124 its time was over; 125 the launcher failed; 126 the program cannot be executed;\n" +
			"127 it was not found; 128+N signal N ended it.",
		Version:              version.Version,
		HideVersion:          true,
		Writer:               p.Out,
		ErrWriter:            p.Err,
		Reader:               p.In,
		EnableBashCompletion: true,
		// A comma is a part of a value: --env LIST=a,b.
		DisableSliceFlagSeparator: true,
		Flags:                     globalFlags(),
		Before:                    func(c *cli.Context) error { return setUpLog(p, c) },
		ExitErrHandler:            func(*cli.Context, error) {}, // Main reports the error and chooses the status
		OnUsageError:              flags.Error,
		Action:                    func(c *cli.Context) error { return noCommand(p, c) },
		Commands: []*cli.Command{
			programs.Run(), createCommand(p), programs.Exec(), files.PutCommand(p), files.GetCommand(p), files.ExportCommand(p), deleteCommand(p), look.List(), look.State(),
			look.PS(), look.Stats(), look.Events(), programs.Logs(), programs.Wait(), killCommand(p), sweepCommand(p),
			look.Verify(), look.Redact(),
			plan.SpecCommand(p), explain.Command(p), explain.PathCommand(p), plan.Command(p), programs.ResultSchema(), look.Doctor(),
			serve.Command(p), poolCommand(p), bench.Command(p), proxyConnectCommand(p), versionCommand(p), completionCommand(p),
		},
	}
	for _, c := range app.Commands {
		if slices.Contains([]string{"run", "create", "exec", "delete"}, c.Name) {
			timed(p, c)
		}
		c.OnUsageError = flags.Error
		for _, sub := range c.Subcommands {
			sub.OnUsageError = flags.Error
		}
	}
	return app
}

// timed gives a command --timings.
func timed(p *caller.Caller, c *cli.Command) {
	c.Flags = append(c.Flags, &cli.BoolFlag{Name: "timings", Usage: "print what the time went to, to standard error"})
	c.Before = func(c *cli.Context) error {
		if c.Bool("timings") {
			p.Timings = caller.StartTimings()
		}
		return nil
	}
}

func globalFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name: "root", Usage: "keep state in `DIR` (default: $SANDBOXRUN_ROOT, /run/sandboxrun as root, " +
				"$XDG_RUNTIME_DIR/sandboxrun, /tmp/sandboxrun-UID)",
		},
		&cli.StringFlag{Name: "log", Usage: "append the log to `FILE` (default: standard error)"},
		&cli.StringFlag{Name: "log-format", Value: "text", Usage: "write the log in `FORMAT`: text or json"},
		&cli.StringFlag{Name: "log-level", Value: "error", Usage: "log `LEVEL` and more severe levels: error, warn, info or debug"},
		&cli.BoolFlag{Name: "debug", Usage: "log everything: the same as --log-level debug"},
		&cli.BoolFlag{Name: "version", Usage: "print the version"},
	}
}

func noCommand(p *caller.Caller, c *cli.Context) error {
	switch {
	case c.NArg() > 0:
		return flags.UnknownCommand(c.App.Commands, "", c.Args().First())
	case c.Bool("version"):
		fmt.Fprintf(p.Out, "sandboxrun %s\n", version.Version)
		return nil
	}
	return cli.ShowAppHelp(c)
}

// setUpLog sets up the log of the launcher and libcontainer.
func setUpLog(p *caller.Caller, c *cli.Context) error {
	level, err := logrus.ParseLevel(c.String("log-level"))
	if err != nil {
		return fault.Usage(fmt.Sprintf("--log-level %q: %v", c.String("log-level"), err), "error, warn, info or debug")
	}
	if c.Bool("debug") {
		level = logrus.DebugLevel
	}
	logrus.SetLevel(level)
	var w io.Writer = p.Err
	if path := c.String("log"); path != "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("open log: %w", err)
		}
		w = f
	}
	logrus.SetOutput(w)
	switch c.String("log-format") {
	case "text":
	case "json":
		logrus.SetFormatter(&logrus.JSONFormatter{})
	default:
		return fault.Usage(fmt.Sprintf("--log-format %q is unknown", c.String("log-format")), "text or json")
	}
	return nil
}
