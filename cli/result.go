package cli

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/hostfile"
	"github.com/sandboxrun/sandboxrun/container/result"
)

// --result writes the result of run and exec. The program's streams then pass through unchanged.

func resultFlag() cli.Flag {
	return &cli.StringFlag{
		Name:  "result",
		Usage: "write the result as one JSON object to `FILE`, or to an open file descriptor (a number above 2)",
	}
}

// resultTo is the destination of --result.
type resultTo struct {
	fd   *os.File // a descriptor of the caller
	path string   // or a file, absolute
	file *hostfile.File
	done bool // the result was written, or must not be
}

// wantResult reads --result. It sets close-on-exec on a descriptor of the caller.
func (p *program) wantResult(c *cli.Context) error {
	text := c.String("result")
	if !c.IsSet("result") || p.result.done { // what was given may name a descriptor that is closed now
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		if p.result.path, err = p.hostDir(c, "result"); err != nil {
			return err
		}
		return nil
	}
	const hint = "open a file for it: sandboxrun run --result 3 -- CMD 3>result.json; for a file named by a number: ./"
	if n <= uint64(unix.Stderr) {
		return &usage{fmt.Sprintf("--result %s: the program's streams go there", text), hint + text}
	}
	fd := uintptr(n)
	flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0)
	// A descriptor with the flag was opened by the launcher, so the caller does not mean it.
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		return &usage{fmt.Sprintf("--result %s: there is no such file descriptor", text), hint + text}
	}
	mode, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
	if err != nil || mode&unix.O_ACCMODE == unix.O_RDONLY || mode&unix.O_PATH != 0 {
		return &usage{fmt.Sprintf("--result %s: it is not open for writing", text), hint + text}
	}
	if _, err := unix.FcntlInt(fd, unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return fmt.Errorf("--result %s: %w", text, err)
	}
	p.result.fd = os.NewFile(fd, "result")
	return nil
}

// openResult makes the file of --result once the program's view is known.
func (p *program) openResult(sb *container.Sandbox) (err error) {
	if p.result.path != "" {
		p.result.file, err = sb.OpenResult(p.result.path)
		p.result.done = err != nil // never write where the program could see it
	}
	return err
}

// writeResult writes the result to the destination of --result, once.
func (p *program) writeResult(r *result.Result) {
	to := &p.result
	if to.done || to.fd == nil && to.path == "" {
		return
	}
	to.done = true
	data, err := r.Encode()
	switch {
	case err != nil:
	case to.fd != nil:
		o := &output{f: to.fd}
		_, err = o.Write(data)
		err = errors.Join(err, to.fd.Close())
	case to.file != nil:
		err = to.file.Commit(data)
	default:
		err = hostfile.Write(to.path, data) // there is no sandbox
	}
	p.resultLost(err)
}

func (p *program) resultLost(err error) {
	if err == nil {
		return
	}
	p.complain(errorText{codeOutputFailed, "write the result: " + reason(err), ""})
	if p.status == 0 {
		p.status = exitLauncher
	}
}

func (p *program) resultCommand() *cli.Command {
	return &cli.Command{
		Name: "result", Usage: "print the schema of results",
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return cli.ShowSubcommandHelp(c)
			}
			return unknownCommand(c.Command.Subcommands, "result ", c.Args().First())
		},
		Subcommands: []*cli.Command{{
			Name: "schema", Usage: "print the JSON Schema of results",
			Action: func(c *cli.Context) error {
				if err := noArguments(c); err != nil {
					return err
				}
				_, err := p.out.Write(result.Schema())
				return err
			},
		}},
	}
}
