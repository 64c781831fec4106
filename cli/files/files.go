// Package files has the commands that move files into a sandbox and out of it, and reads files of the caller for execs that bring
// some. Package container knows which paths are safe; these commands name paths, and warn the caller of
// files that were left out.
package files

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/transfer"
	"github.com/sandboxrun/sandboxrun/units"
)

func cwdFlag() cli.Flag {
	return &cli.StringFlag{Name: "cwd", Aliases: []string{"C"}, Usage: "the path inside is relative to `DIR` (default: the policy's working directory)"}
}

func transferFlags() []cli.Flag {
	return []cli.Flag{
		cwdFlag(),
		&cli.StringFlag{Name: "max", Usage: "transfer at most `SIZE` together", Value: "1M"},
	}
}

// FromHost reads a file or directory of the host as what it is to be inside.
func FromHost(p *caller.Caller, sb *container.Sandbox, src, dst string, limit int64) ([]container.Put, error) {
	name, err := p.OnHost("put", src)
	if err != nil {
		return nil, err
	}
	files, dropped, err := sb.ReadHost(name, limit)
	if err != nil {
		return nil, err
	}
	for _, d := range dropped {
		p.Warn(fmt.Sprintf("not put: %q: %s", d.Path, d.Why))
	}
	if dst == "." || strings.HasSuffix(dst, "/") {
		dst = path.Join(dst, filepath.Base(name))
	}
	var list []container.Put
	for _, f := range files {
		if f.Mode&fs.ModeSymlink != 0 {
			p.Warn(fmt.Sprintf("not put: %q: a link", path.Join(src, f.Path)))
			continue
		}
		put := container.Put{Path: path.Join(dst, f.Path), Data: f.Data, Mode: 0o666 | f.Mode.Perm()&0o111}
		if f.Path == "." {
			put.Path = dst // as it was written, so that an error names that
		}
		if f.Mode.IsDir() {
			put.Mode = fs.ModeDir
		}
		list = append(list, put)
	}
	return list, nil
}

// PutCommand is the command put.
func PutCommand(p *caller.Caller) *cli.Command {
	return &cli.Command{
		Name: "put", Usage: "write a file or a directory of yours into a sandbox", ArgsUsage: "ID SRC DST",
		Description: "DST is relative to the working directory inside, and cannot leave it. SRC - is standard input. The file is written with the\n" +
			"rights of the sandbox's programs, as one of them would.",
		Flags: transferFlags(),
		Action: transferAction(p, func(sb *container.Sandbox, cwd, src, dst string, limit int64) error {
			files, err := filesToPut(p, sb, src, dst, limit)
			if err != nil {
				return err
			}
			return sb.Put(cwd, files)
		}),
	}
}

// transferAction is the action of put and get: what is done with the sandbox, the source and the destination that are named.
func transferAction(p *caller.Caller, do func(sb *container.Sandbox, cwd, src, dst string, limit int64) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		args, limit, err := transferArguments(c)
		if err != nil {
			return err
		}
		return p.WithSandbox(c, args[0], func(sb *container.Sandbox) error { return do(sb, c.String("cwd"), args[1], args[2], limit) })
	}
}

func filesToPut(p *caller.Caller, sb *container.Sandbox, src, dst string, limit int64) ([]container.Put, error) {
	if src != "-" {
		return FromHost(p, sb, src, dst, limit)
	}
	data, err := io.ReadAll(io.LimitReader(p.In, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read standard input: %w", err)
	case int64(len(data)) > limit:
		return nil, fault.Usage(fmt.Sprintf("standard input is larger than %d bytes", limit), "allow more: --max")
	}
	return []container.Put{{Path: dst, Data: data}}, nil
}

func transferArguments(c *cli.Context) (args []string, limit int64, err error) {
	if args, err = flags.Arguments(c); err != nil {
		return nil, 0, err
	}
	if len(args) != 3 {
		return nil, 0, fault.Usage("name a sandbox, a source and a destination", flags.Help(c))
	}
	if limit, err = units.ParseSize(c.String("max")); err != nil || limit < 1 {
		return nil, 0, fault.Usage(fmt.Sprintf("--max %q is no size", c.String("max")), "bytes, or a whole number with K, M, G or T")
	}
	return args, limit, nil
}

// GetCommand is the command get.
func GetCommand(p *caller.Caller) *cli.Command {
	return &cli.Command{
		Name: "get", Usage: "read a file or a directory out of a sandbox", ArgsUsage: "ID SRC DST",
		Description: "SRC is relative to the working directory inside, and cannot leave it. DST is a new directory, or a file, which is replaced;\n" +
			"- is standard output. Links that leave SRC, pipes, sockets, devices and set-user-id bits are left out, and named.",
		Flags: transferFlags(),
		Action: transferAction(p, func(sb *container.Sandbox, cwd, src, dst string, limit int64) error {
			files, err := sb.Files(cwd)
			if err != nil {
				return err
			}
			defer files.Close()
			return get(p, sb, files, src, dst, limit)
		}),
	}
}

// ExportCommand is the command export.
func ExportCommand(p *caller.Caller) *cli.Command {
	return &cli.Command{
		Name: "export", Usage: "copy a file or a directory out of a sandbox, sanitized, or make an archive of it", ArgsUsage: "ID SRC DST",
		Description: "SRC is a path inside. DST is a new directory, a file, which is replaced, or a new archive, if it ends with .tar. Links that leave SRC,\n" +
			"pipes, sockets, devices, set-user-id bits and what the program itself may not read are left out, and named. Holes of files stay holes.",
		Flags: []cli.Flag{
			cwdFlag(), &cli.StringFlag{Name: "max", Usage: "copy at most `SIZE` together", Value: "1G"},
		},
		Action: transferAction(p, func(sb *container.Sandbox, cwd, src, dst string, limit int64) error {
			if path.IsAbs(src) {
				cwd, src = "/", cmp.Or(strings.TrimLeft(src, "/"), ".")
			}
			files, err := sb.Files(cwd)
			if err != nil {
				return err
			}
			defer files.Close()
			if dst, err = hostTarget(p, "export", src, dst); err != nil {
				return err
			}
			dropped, err := sb.ExportTo(files, src, dst, limit)
			sayDropped(p, dropped)
			return err
		}),
	}
}

// hostTarget is where on the host something is written: in a directory that is there it has its own name.
func hostTarget(p *caller.Caller, what, src, dst string) (string, error) {
	dst, err := p.OnHost(what, dst)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(dst); err == nil && info.IsDir() && path.Base(src) != "." {
		dst = path.Join(dst, path.Base(src))
	}
	return dst, nil
}

func sayDropped(p *caller.Caller, dropped []transfer.Dropped) {
	for _, d := range dropped {
		p.Warn(fmt.Sprintf("left out: %q: %s", d.Path, d.Why))
	}
}

func get(p *caller.Caller, sb *container.Sandbox, files *container.Files, src, dst string, limit int64) error {
	var dropped []transfer.Dropped
	var err error
	if dst == "-" {
		dropped, err = files.Get(src, limit, stdoutSink{p})
	} else {
		if dst, err = hostTarget(p, "get", src, dst); err != nil {
			return err
		}
		dropped, err = sb.GetTo(files, src, dst, limit)
	}
	sayDropped(p, dropped)
	return err
}

// stdoutSink writes one file to standard output.
type stdoutSink struct{ p *caller.Caller }

func (s stdoutSink) Dir(string, fs.FileMode) error {
	return fault.Usage("a directory cannot be written to standard output", "name a new directory")
}

func (s stdoutSink) File(_ string, _ fs.FileMode, data io.Reader) error {
	_, err := io.Copy(struct{ io.Writer }{s.p.Out}, data)
	return err
}

func (s stdoutSink) Link(string, string) error { return nil }
