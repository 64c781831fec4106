package run

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/hostfile"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
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
func (p *Commands) wantResult(c *cli.Context) error {
	text := c.String("result")
	if !c.IsSet("result") || p.result.done { // what was given may name a descriptor that is closed now
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		if p.result.path, err = p.HostDir(c, "result"); err != nil {
			return err
		}
		return nil
	}
	const hint = "open a file for it: sandboxrun run --result 3 -- CMD 3>result.json; for a file named by a number: ./"
	if n <= uint64(unix.Stderr) {
		return fault.Usage(fmt.Sprintf("--result %s: the program's streams go there", text), hint+text)
	}
	fd := uintptr(n)
	flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0)
	// A descriptor with the flag was opened by the launcher, so the caller does not mean it.
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		return fault.Usage(fmt.Sprintf("--result %s: there is no such file descriptor", text), hint+text)
	}
	mode, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
	if err != nil || mode&unix.O_ACCMODE == unix.O_RDONLY || mode&unix.O_PATH != 0 {
		return fault.Usage(fmt.Sprintf("--result %s: it is not open for writing", text), hint+text)
	}
	if _, err := unix.FcntlInt(fd, unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return fmt.Errorf("--result %s: %w", text, err)
	}
	p.result.fd = os.NewFile(fd, "result")
	return nil
}

// openResult makes the file of --result once the program's view is known.
func (p *Commands) openResult(sb *container.Sandbox) (err error) {
	if p.result.path != "" {
		p.result.file, err = sb.OpenResult(p.result.path)
		p.result.done = err != nil // never write where the program could see it
	}
	return err
}

// printResult prints what programs read, once.
func (p *Commands) printResult(v any) {
	p.PrintJSON(v)
	p.resultPrinted = true
}

// failed passes on the result of a command that has failed.
func (p *Commands) failed(r *result.Result) {
	if p.jsonResult && !p.resultPrinted {
		p.printResult(r)
	}
	p.writeResult(r)
}

// writeResult writes the result to the destination of --result, once.
func (p *Commands) writeResult(r *result.Result) {
	to := &p.result
	if to.done || to.fd == nil && to.path == "" {
		return
	}
	to.done = true
	data, err := r.Encode()
	switch {
	case err != nil:
	case to.fd != nil:
		o := &caller.Output{File: to.fd}
		_, err = o.Write(data)
		err = errors.Join(err, to.fd.Close())
	case to.file != nil:
		err = to.file.Commit(data)
	default:
		err = hostfile.Write(to.path, data) // there is no sandbox
	}
	p.resultLost(err)
}

func (p *Commands) resultLost(err error) {
	if err == nil {
		return
	}
	p.Complain(&result.Error{Code: fault.OutputFailed, Message: "write the result: " + caller.Reason(err)})
	if p.Status == 0 {
		p.Status = fault.ExitLauncher
	}
}

// ResultSchema is the command result.
func (p *Commands) ResultSchema() *cli.Command {
	return &cli.Command{
		Name: "result", Usage: "print the schema of results",
		Action: func(c *cli.Context) error {
			if c.NArg() == 0 {
				return cli.ShowSubcommandHelp(c)
			}
			return flags.UnknownCommand(c.Command.Subcommands, "result ", c.Args().First())
		},
		Subcommands: []*cli.Command{{
			Name: "schema", Usage: "print the JSON Schema of results",
			Action: func(c *cli.Context) error {
				if err := flags.None(c); err != nil {
					return err
				}
				_, err := p.Out.Write(result.Schema())
				return err
			},
		}},
	}
}
