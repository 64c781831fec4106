// Package caller is the program or person that runs this command, as every command sees it: arguments, variables, directory and
// streams, and what the command answers: output, warnings, errors and the exit status. It opens the caller's state directory too.
//
// It knows no command. It may import the packages of container, and nothing of cli.
package caller

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
)

// Caller is the caller of one run of the command.
type Caller struct {
	Args   []string
	Env    map[string]string
	In     *os.File
	Out    *Output
	Err    *os.File
	ErrOut *Output // the same file as Err, for the output of programs

	Status    int                  // exit status if there is no error
	Warnings  *[]string            // if set, warnings go here instead of to standard error
	OnFailure func(*result.Result) // if set, it gets the result of a command that fails

	Timings *Timings // nil: nobody asks

	Cwd    string
	CwdErr error // the caller's directory no longer exists, or cannot be found
}

// New is the caller whose process started this one. closed are its closed standard streams, as bits 0 to 2.
func New(args, environ []string, stdin, stdout, stderr *os.File, closed int) *Caller {
	c := &Caller{
		Args: args, Env: environment(environ), In: stdin, Err: stderr,
		Out: &Output{File: stdout, Closed: closed&2 != 0}, ErrOut: &Output{File: stderr, Closed: closed&4 != 0},
	}
	c.Cwd, c.CwdErr = os.Getwd()
	return c
}

// NoCwd says what CwdErr means to the caller.
func (c *Caller) NoCwd() string {
	if errors.Is(c.CwdErr, fs.ErrNotExist) {
		return "the current directory no longer exists"
	}
	return fmt.Sprintf("the current directory cannot be opened: %v", fault.Cause(c.CwdErr))
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

// EnoughFiles checks that the Go runtime can open its own files. If it cannot, the runtime ends the process later, with a status that
// could be the program's.
func EnoughFiles() error {
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
