package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/lookup"
	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/pool"
	"github.com/sandboxrun/sandboxrun/container/trust"
	"github.com/sandboxrun/sandboxrun/spec"
)

const (
	defaultPool = 2
	largestPool = 64
)

func (p *program) poolCommand() *cli.Command {
	return &cli.Command{
		Name: "pool", Usage: "run a command whose sandboxes are made ahead", ArgsUsage: "[--] COMMAND [ARG...]",
		Description: "Keeps sandboxes of the policy ready, each proven and never used, while COMMAND runs. Each run and create of that policy in\n" +
			"COMMAND takes one of them, and another is made. Where none is ready, or something that the policy depends on has changed, run and\n" +
			"create make a sandbox as always. Those that are ready end with this command. The exit status is COMMAND's.",
		Flags: []cli.Flag{
			policyFlag(),
			&cli.IntFlag{Name: "size", Value: defaultPool, Usage: fmt.Sprintf("keep `N` sandboxes ready, at most %d", largestPool)},
		},
		Action: p.pool,
	}
}

func (p *program) pool(c *cli.Context) error {
	command := c.Args().Slice()
	if len(command) == 0 {
		return &usage{"the command is missing", helpHint(c)}
	}
	size, name := c.Int("size"), c.String("policy")
	if size < 1 || size > largestPool {
		return &usage{fmt.Sprintf("--size %d: not from 1 to %d", size, largestPool), ""}
	}
	if name == "-" || ownDescriptor(name) {
		return &usage{"a pool reads its policy again and again: --policy must name a file or a preset", "write it to a file"}
	}
	program, err := exec.LookPath(command[0])
	if err != nil {
		return notRun(err)
	}
	debug.SetGCPercent(100) // this process stays
	store, err := p.store(c)
	if err != nil {
		return err
	}
	defer store.Close()
	defer func() { _, _ = store.Sweep() }() // of the directory that the pool listened in
	made, err := pool.New(p.poolConfig(c, store, name, size))
	if err != nil {
		return err
	}
	defer made.Close()
	listener, err := made.Serve()
	if err != nil {
		return err
	}
	defer listener.Close()
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, pool.Variable+"=") })
	return p.runCommandOf(exec.Cmd{Path: program, Args: command, Env: append(env, pool.Variable+"="+listener.Name)})
}

// poolConfig decides again and again what newSandbox decides once. Warnings are printed by who gets the sandbox.
func (p *program) poolConfig(c *cli.Context, store *container.Store, name string, size int) pool.Config {
	config := pool.Config{Store: store, Size: size, Policy: name, Dir: p.cwd, Versions: versions(), Trouble: func(err error) { logrus.Warn(err) }}
	if _, preset := spec.Preset(name); !preset && name != "" {
		config.Policy, _ = filepath.Abs(name) // the policy cannot be read either
	}
	own, known := *p, p.trust(c)
	own.warned = new([]string)
	config.Decide = func() (*pool.Decision, error) {
		*own.warned = nil
		d, err := own.decideTraced(name, known)
		if err != nil {
			return nil, err
		}
		if err := store.IsKept(d.Host); err != nil {
			return nil, err
		}
		if _, err := store.Sweep(); err != nil {
			logrus.Warn(err)
		}
		return d, nil
	}
	return config
}

// notRun is the error of a command that could not be run.
func notRun(err error) error {
	code := lookup.CodeNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = lookup.CodeNotFound
	}
	return &container.Error{Code: code, Err: err}
}

// runCommandOf runs a command with our streams, and passes signals on to it.
func (p *program) runCommandOf(cmd exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.in, p.out.f, p.err
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
			if (sig == unix.SIGINT || sig == unix.SIGQUIT) && inForeground() {
				continue // the terminal has sent it to the command too
			}
			_ = cmd.Process.Signal(sig) // it may have ended
		case err := <-ended:
			exit, failed := errors.AsType[*exec.ExitError](err)
			if err != nil && !failed {
				return err
			}
			if failed {
				p.status = exit.ExitCode()
				if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
					p.status = exitSignal + int(s.Signal())
				}
			}
			return nil
		}
	}
}

// inForeground says whether a terminal's keys send us signals.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// fromPool claims a sandbox of the pool that the command runs in, or returns nil.
func (p *program) fromPool(c *cli.Context, s *container.Store, id string, run bool, of *owner.Owner, env map[string]string) *container.Sandbox {
	name := p.env[pool.Variable]
	if name == "" || len(p.grants) > 0 || c.String("policy") == "-" {
		return nil
	}
	record, err := p.hostDir(c, "record")
	if err != nil {
		return nil
	}
	sb, dir, err := pool.Claim(s, name, pool.Want{ID: id, Run: run, Policy: c.String("policy"), Owner: of, Record: record, Env: len(env) > 0})
	if err != nil {
		logrus.Info("not from the pool: ", err)
		return nil
	}
	p.staysInPlace = dir == p.cwd
	for _, w := range sb.State().Warnings {
		p.warn(w)
	}
	return sb
}

// decideTraced is decide, with all that the plan depends on.
func (p *program) decideTraced(name string, t trust.Known) (*pool.Decision, error) {
	policy, err := p.loadPolicy(name, name == "")
	if err != nil {
		return nil, err
	}
	host, trace, err := container.ProbeTraced(policy.Limits)
	if err != nil {
		return nil, err
	}
	d, err := p.resolve(policy, host, nil, t)
	if err != nil {
		return nil, err
	}
	trusted := []string{t.State, trust.StatePath("", "", os.Geteuid()), trust.StatePath("", p.env["XDG_RUNTIME_DIR"], os.Geteuid())}
	return &pool.Decision{Policy: policy, Host: host, Plan: d.plan, Trace: trace, Env: p.env, Trusted: trusted}, nil
}
