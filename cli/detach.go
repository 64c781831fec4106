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

// refuseAttached refuses flags that need a caller who waits, because a detached exec has none.
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
		return &usage{"--result and --detach cannot be combined", "the exec has no result yet: sandboxrun wait --json ID EXEC"}
	}
	return nil
}

// detach starts an exec that continues after this command.
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

// hostDir makes the directory of a flag absolute, because the processes that use it have another working directory.
func (p *program) hostDir(c *cli.Context, flag string) (string, error) {
	dir := c.String(flag)
	switch {
	case !c.IsSet(flag) || filepath.IsAbs(dir):
		return dir, nil
	case dir == "":
		return "", &usage{"--" + flag + " is empty", "name a directory"}
	case p.cwdErr != nil:
		return "", &usage{"the current directory no longer exists", "give --" + flag + " an absolute path"}
	}
	return p.cwd + "/" + dir, nil // not cleaned, because ".." after a symlink is another directory
}

// isOurs reports whether another sandboxrun process started this one, as a monitor or relay: it then has pipes and no environment
// variable. A user who types the word has variables.
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

// relay serves a sandbox's network until the sandbox ends. No signal of a terminal or of the caller's session ends it.
func (p *program) relay() int {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP)
	_ = os.WriteFile("/proc/self/comm", []byte("sandboxrun"), 0) // the name would be that of /proc/self/exe
	in, out, err := monitorStreams()
	if err == nil {
		err = container.Relay(in, out)
	}
	if err != nil {
		return exitLauncher
	}
	return 0
}

// monitor supervises a detached exec. No signal of a terminal or of the caller's session ends it. It passes SIGTERM on to the
// program, as an attached exec does.
func (p *program) monitor() int {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTSTP)
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, unix.SIGTERM)
	_ = os.WriteFile("/proc/self/comm", []byte("sandboxrun"), 0) // the name would be that of /proc/self/exe
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

// monitorStreams moves the pipes to the command away from the standard streams and points these to /dev/null, so that no process
// that the monitor starts keeps the pipes open.
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
