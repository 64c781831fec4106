// Package cli is the command line. It reads flags and policies, calls package container, prints results, errors and hints, and
// chooses the exit status. It makes no decision about a sandbox: spec decides, container acts. Each command has one file.
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
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/relayproc"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/spec"
)

// program is one run of the command.
type program struct {
	args          []string
	env           map[string]string
	in            *os.File
	out           *output
	err           *os.File
	programErr    *output // the same file as err, for the output of programs
	status        int     // exit status if there is no error
	jsonResult    bool
	resultPrinted bool
	result        resultTo
	staysInPlace  bool        // the program starts in the caller's directory, if the view has it
	grants        []spec.Flag // additions of the command line to the policy
	inline        []byte      // a policy that is not a file
	warned        *[]string   // if set, warnings go here instead of to standard error
	made          *spec.Plan  // the plan of the last sandbox
	puts          [][2]string // --put: a path of the caller's, and one inside
	cwd           string
	cwdErr        error // the caller's directory no longer exists
}

// memoryLimit is the heap size, in bytes, at which the garbage collector runs after all, because stored output may be large.
const memoryLimit = 64 << 20

// umask is the umask of the launcher's files. Programs have the policy's.
const umask = 0o022

// Main runs the command and returns its exit status.
func Main(args, environ []string, stdin, stdout, stderr *os.File) int {
	gone := container.ClosedStreams()
	if !stays(args) {
		runtime.UnlockOSThread() // a goroutine that has to change threads all the time is slow
	}
	p := &program{
		args: args, env: environment(environ), in: stdin, err: stderr,
		out: &output{f: stdout, closed: gone&2 != 0}, programErr: &output{f: stderr, closed: gone&4 != 0},
	}
	p.cwd, p.cwdErr = os.Getwd()
	if p.cwdErr != nil {
		// The caller's directory was deleted. Only relative paths then fail.
		if err := os.Chdir("/"); err != nil {
			return p.report(err)
		}
	}
	// A command allocates a few megabytes at most before its program runs; the garbage collector would cost more than they do.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryLimit)
	ignoreBrokenPipes()
	signal.Ignore(unix.SIGXFSZ) // a write beyond the limit is then an error, not a signal
	// The caller's umask must not make directories of a sandbox unsearchable. (opencontainers/runc#1359)
	unix.Umask(umask)
	if completesProgram(args) {
		return 0
	}
	if err := enoughFiles(); err != nil {
		return p.report(err)
	}
	switch {
	case p.isOurs(container.MonitorCommand):
		return p.monitor()
	case p.isOurs(relayproc.Command):
		return p.relay()
	}
	err := p.app().Run(args)
	status := p.status
	if err != nil && (p.out.failed() == nil || !errors.Is(err, p.out.failed())) {
		status = p.report(err)
	}
	return p.lostOutput(status)
}

// stays reports whether a command may make many sandboxes. libcontainer enters each one's mount namespace with a thread that ends
// afterwards. The first thread of a process cannot end: it would keep the namespace, and all that is in its memory. So main keeps that thread.
func stays(args []string) bool { return slices.Contains(args, "serve") || slices.Contains(args, "pool") }

// enoughFiles checks that the Go runtime can open its own files. If it cannot, the runtime ends the process later, with a status that
// could be the program's.
func enoughFiles() error {
	const needed = 4 // two of them for a pipe
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for range needed {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open files of the launcher: %w", err)
		}
		fds = append(fds, fd)
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	fds = nil
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("open files of the launcher: %w", err)
	}
	r.Close()
	w.Close()
	return nil
}

// completesProgram reports whether a shell completes the program's command line after "--". The library would run the program.
func completesProgram(args []string) bool {
	last := len(args) - 1
	return last > 0 && args[last] == "--generate-bash-completion" && slices.Contains(args[:last], "--")
}

func environment(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			env[k] = v
		}
	}
	return env
}

func (p *program) app() *cli.App {
	app := &cli.App{
		Name:  "sandboxrun",
		Usage: "run a program so that it sees only what a policy grants",
		Description: "run    runs one program in a sandbox of its own.\n" +
			"create builds a sandbox that stays; exec runs programs in it; delete removes it.\n" +
			"The program sees the files, variables and hosts that the policy names, and nothing else of the machine.\n" +
			"Exit status: the program's; 124 its time was over; 125 the launcher failed; 126 the program cannot be executed;\n" +
			"127 it was not found; 128+N signal N ended it.",
		Version:              Version,
		HideVersion:          true,
		Writer:               p.out,
		ErrWriter:            p.err,
		Reader:               p.in,
		EnableBashCompletion: true,
		// A comma is a part of a value: --env LIST=a,b.
		DisableSliceFlagSeparator: true,
		Flags:                     globalFlags(),
		Before:                    p.before,
		ExitErrHandler:            func(*cli.Context, error) {}, // Main reports the error and chooses the status
		OnUsageError:              usageError,
		Action:                    p.noCommand,
		Commands: []*cli.Command{
			p.runCommand(), p.createCommand(), p.execCommand(), p.putCommand(), p.getCommand(), p.deleteCommand(), p.listCommand(), p.stateCommand(),
			p.psCommand(), p.statsCommand(), p.eventsCommand(), p.logsCommand(), p.waitCommand(), p.killCommand(), p.sweepCommand(),
			p.verifyCommand(),
			p.specCommand(), p.explainCommand(), p.policyCommand(), p.resultCommand(), p.doctorCommand(),
			p.serveCommand(), p.poolCommand(), p.proxyConnectCommand(), p.versionCommand(), p.completionCommand(),
		},
	}
	for _, c := range app.Commands {
		c.OnUsageError = usageError
		for _, sub := range c.Subcommands {
			sub.OnUsageError = usageError
		}
	}
	return app
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

// usage is a command line that cannot be understood.
type usage struct{ message, hint string }

func (u *usage) Error() string { return u.message }

func usageError(c *cli.Context, err error, _ bool) error {
	u := &usage{err.Error(), helpHint(c)}
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
	if near := spec.Nearest(strings.TrimPrefix(name, "-"), names); len(near) > 1 {
		u.hint = fmt.Sprintf("did you mean --%s? %s", near, u.hint)
	}
	return u
}

func helpHint(c *cli.Context) string {
	if c.Command != nil && c.Command.Name != "" && c.Command.Name != c.App.Name {
		return "sandboxrun " + c.Command.Name + " --help"
	}
	return "sandboxrun --help"
}

func (p *program) noCommand(c *cli.Context) error {
	switch {
	case c.NArg() > 0:
		return unknownCommand(c.App.Commands, "", c.Args().First())
	case c.Bool("version"):
		fmt.Fprintf(p.out, "sandboxrun %s\n", Version)
		return nil
	}
	return cli.ShowAppHelp(c)
}

func unknownCommand(commands []*cli.Command, parent, name string) error {
	u := &usage{fmt.Sprintf("unknown command %q", parent+name), "sandboxrun " + parent + "--help"}
	names := make([]string, 0, len(commands))
	for _, c := range commands {
		names = append(names, c.Name)
	}
	if near := spec.Nearest(name, names); near != "" {
		u.hint = fmt.Sprintf("did you mean %q? sandboxrun %s--help lists the commands", near, parent)
	}
	return u
}

// noArguments refuses arguments, because a flag without dashes must not look as if it had worked.
func noArguments(c *cli.Context) error {
	if c.NArg() > 0 {
		return &usage{fmt.Sprintf("unexpected argument %q", c.Args().First()), helpHint(c)}
	}
	return nil
}

// before sets up the log of the launcher and libcontainer.
func (p *program) before(c *cli.Context) error {
	level, err := logrus.ParseLevel(c.String("log-level"))
	if err != nil {
		return &usage{fmt.Sprintf("--log-level %q: %v", c.String("log-level"), err), "error, warn, info or debug"}
	}
	if c.Bool("debug") {
		level = logrus.DebugLevel
	}
	logrus.SetLevel(level)
	var w io.Writer = p.err
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
		return &usage{fmt.Sprintf("--log-format %q is unknown", c.String("log-format")), "text or json"}
	}
	return nil
}

// store opens the state directory.
func (p *program) store(c *cli.Context) (*container.Store, error) {
	return container.OpenStore(p.statePath(c))
}

// trust has the trusted files of every command; see trust.Known.
func (p *program) trust(c *cli.Context) trust.Known {
	return trust.Known{State: p.statePath(c)}
}

func (p *program) statePath(c *cli.Context) string {
	dir := c.String("root")
	if dir == "" {
		dir = p.env["SANDBOXRUN_ROOT"]
	}
	return trust.StatePath(dir, p.env["XDG_RUNTIME_DIR"], os.Geteuid())
}

// oneID returns the only argument of many commands. Flags may follow it.
func oneID(c *cli.Context) (string, error) {
	if c.NArg() == 0 {
		return "", &usage{"the sandbox's id is missing", helpHint(c)}
	}
	rest, err := commandAfter(c)
	if err == nil && len(rest) > 0 {
		err = &usage{fmt.Sprintf("unexpected argument %q", rest[0]), helpHint(c)}
	}
	return c.Args().First(), err
}
