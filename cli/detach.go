package cli

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container"
)

// refuseAttached refuses what a detached exec cannot have, since nobody is there.
func refuseAttached(c *cli.Context) error {
	for _, name := range []string{"stdin", "tty"} {
		if c.Bool("detach") && c.Bool(name) {
			return &usage{
				fmt.Sprintf("--%s and --detach cannot be combined", name),
				"a detached program reads nothing; let it read a file, and see what it writes with sandboxrun logs",
			}
		}
	}
	if c.Bool("detach") && c.IsSet("put") {
		return &usage{"--put and --detach cannot be combined", "sandboxrun put"}
	}
	if c.Bool("detach") && c.IsSet("result") {
		return &usage{"--result and --detach cannot be combined", "the result is not there yet: sandboxrun wait --json ID EXEC"}
	}
	return nil
}

// detach starts a program whose exec goes on without us.
func (p *program) detach(c *cli.Context, id string, req container.Request) error {
	return p.withStore(c, func(s *container.Store) error {
		name, err := s.Detach(id, req)
		if err != nil {
			return err
		}
		if p.jsonResult {
			p.printJSON(struct {
				Sandbox string `json:"sandbox"`
				Exec    string `json:"exec"`
			}{id, name})
			return nil
		}
		fmt.Fprintln(p.out, name)
		return nil
	})
}

// hostDir is a directory that a flag names, made absolute: others who use it have another working directory.
func (p *program) hostDir(c *cli.Context, flag string) (string, error) {
	dir := c.String(flag)
	switch {
	case !c.IsSet(flag) || filepath.IsAbs(dir):
		return dir, nil
	case dir == "":
		return "", &usage{"--" + flag + " is empty", "name a directory"}
	case p.cwdErr != nil:
		return "", &usage{"the current directory does not exist any more", "give --" + flag + " an absolute path"}
	}
	return p.cwd + "/" + dir, nil // not cleaned: behind a link ".." is not what is left of it
}

// isOurs says whether this process was started by another of ours, to be a monitor or a relay, and not by somebody who
// typed the word: it has pipes, and no variable at all.
func (p *program) isOurs(word string) bool {
	if len(p.args) != 3 || p.args[1] != word || len(p.env) > 0 {
		return false
	}
	for _, f := range []*os.File{p.in, p.out.f} {
		if info, err := f.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
			return false
		}
	}
	return true
}

// relay serves a sandbox's network until the sandbox ends. Nothing of a terminal or of the caller's session ends it.
func (p *program) relay() int {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP)
	_ = os.WriteFile("/proc/self/comm", []byte("sandboxrun"), 0) // it was started as /proc/self/exe
	in, out, err := monitorStreams()
	if err == nil {
		err = container.Relay(in, out)
	}
	if err != nil {
		return exitLauncher
	}
	return 0
}

// monitor looks after a detached exec. No signal of a terminal or of the caller's session ends it; SIGTERM is the
// program's, as in an exec that is not detached.
func (p *program) monitor() int {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTSTP)
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, unix.SIGTERM)
	_ = os.WriteFile("/proc/self/comm", []byte("sandboxrun"), 0) // it was started as /proc/self/exe
	in, out, err := monitorStreams()
	if err != nil {
		return exitLauncher
	}
	container.Monitor(in, out, func(r *container.Running) {
		go func() {
			for range terms {
				_ = r.Signal(unix.SIGTERM) // it may have ended
			}
		}()
	})
	return 0
}

// monitorStreams takes the pipes to the command from the standard streams, which then lead nowhere: nothing of ours may
// keep them, nor what we start.
func monitorStreams() (in, out *os.File, err error) {
	var pipes [2]*os.File
	for i := range pipes {
		fd, err := unix.FcntlInt(uintptr(i), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, nil, err
		}
		pipes[i] = os.NewFile(uintptr(fd), "pipe")
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	for i := range 3 {
		if err := unix.Dup3(int(null.Fd()), i, 0); err != nil {
			return nil, nil, err
		}
	}
	return pipes[0], pipes[1], nil
}
