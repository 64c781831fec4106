package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/cli/plan"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/pool"
	"github.com/sandboxrun/sandboxrun/fault"
)

const (
	defaultPool = 2
	largestPool = 64
)

func poolCommand(p *caller.Caller) *cli.Command {
	return &cli.Command{
		Name: "pool", Usage: "run a command whose sandboxes are made ahead", ArgsUsage: "[--] COMMAND [ARG...]",
		Description: "Keeps sandboxes of the policy ready, each proven and never used, while COMMAND runs. Each run and create of that policy in\n" +
			"COMMAND takes one of them, and another is made. Where none is ready, or something that the policy depends on has changed, run and\n" +
			"create make a sandbox as always. Those that are ready end with this command. The exit status is COMMAND's.",
		Flags: []cli.Flag{
			flags.Policy(),
			&cli.IntFlag{Name: "size", Value: defaultPool, Usage: fmt.Sprintf("keep `N` sandboxes ready, at most %d", largestPool)},
		},
		Action: func(c *cli.Context) error { return runPool(p, c) },
	}
}

func runPool(p *caller.Caller, c *cli.Context) error {
	command := c.Args().Slice()
	if len(command) == 0 {
		return fault.Usage("the command is missing", flags.Help(c))
	}
	size, name := c.Int("size"), c.String("policy")
	if size < 1 || size > largestPool {
		return fault.Usage(fmt.Sprintf("--size %d: not from 1 to %d", size, largestPool), "")
	}
	if name == "-" || flags.OwnDescriptor(name) {
		return fault.Usage("a pool reads its policy again and again: --policy must name a file or a preset", "write it to a file")
	}
	program, err := exec.LookPath(command[0])
	if err != nil {
		return notRun(err)
	}
	debug.SetGCPercent(100) // this process stays
	return p.WithStore(c, func(store *container.Store) error {
		defer func() { _, _ = store.Sweep() }() // of the directory that the pool listens in
		made, err := pool.New(plan.Pool(p, store, plan.Source{Name: name, Workspace: name == "", Trust: p.Trust(c)}, size))
		if err != nil {
			return err
		}
		defer made.Close()
		listener, err := made.Serve()
		if err != nil {
			return err
		}
		defer listener.Close()
		env := []string{pool.Variable + "=" + listener.Name}
		for name, value := range p.Env {
			if name != pool.Variable {
				env = append(env, name+"="+value)
			}
		}
		return runCommandOf(p, exec.Cmd{Path: program, Args: command, Env: env})
	})
}

// notRun is the error of a command that could not be run.
func notRun(err error) error {
	code := fault.ProgramNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = fault.ProgramNotFound
	}
	return &fault.Error{Code: code, Err: err}
}

// runCommandOf runs a command with our streams, and passes signals on to it.
func runCommandOf(p *caller.Caller, cmd exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.In, p.Out.File, p.Err
	signals := make(chan os.Signal, 16)
	for _, sig := range []os.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM} {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return notRun(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			if sig != unix.SIGINT && sig != unix.SIGQUIT || !inForeground() { // else the terminal has sent it to the command too
				_ = cmd.Process.Signal(sig) // it may have ended
			}
		case err := <-ended:
			return exitAs(p, err)
		}
	}
}

// exitAs makes the exit status of the command ours.
func exitAs(p *caller.Caller, err error) error {
	exit, failed := errors.AsType[*exec.ExitError](err)
	if !failed {
		return err
	}
	p.Status = exit.ExitCode()
	if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		p.Status = 128 + int(s.Signal())
	}
	return nil
}

// inForeground reports whether a terminal's keys send us signals.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
