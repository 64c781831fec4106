package cli

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/spec/policy"
	"github.com/sandboxrun/sandboxrun/transfer"
)

func transferFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "cwd", Aliases: []string{"C"}, Usage: "the path inside is relative to `DIR` (default: the policy's working directory)"},
		&cli.StringFlag{Name: "max", Usage: "transfer at most `SIZE` together", Value: "1M"},
	}
}

// carryFlags are those of an exec that brings files with it or takes some away.
func carryFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "put", Usage: "write `SRC:DST` first: a file or directory of yours, and its path below the working directory inside; 1 MiB at most"},
		&cli.StringSliceFlag{
			Name: "collect", Usage: "read `PATH[:DST]` in the end: a file, directory or pattern below the working directory inside, " +
				"into the result (--json), or to a new file or directory of yours; 1 MiB at most",
		},
		&cli.StringSliceFlag{Name: "fresh", Usage: "let the program have an empty `DIR` there that is gone when it ends (/tmp, ~, any directory inside)"},
		&cli.StringFlag{
			Name: "on-output-limit", Value: "truncate",
			Usage: "what becomes of a program that writes more than limits.output: `truncate` keeps the first and last part, kill ends it",
		},
		&cli.BoolFlag{Name: "answer", Usage: "give the program file descriptor 3, named by $SANDBOXRUN_RESULT, for an answer that the result holds"},
	}
}

// carry reads these flags.
func (p *program) carry(c *cli.Context, req *container.Request) error {
	for _, text := range c.StringSlice("put") {
		src, dst, ok := cutLast(text)
		if !ok {
			return &usage{fmt.Sprintf("--put %q is not SRC:DST", text), "a path of yours, and one below the working directory inside"}
		}
		p.puts = append(p.puts, [2]string{src, dst})
	}
	for _, text := range c.StringSlice("collect") {
		col := container.Collect{Path: text}
		if name, to, ok := cutLast(text); ok {
			abs, err := p.onHost("collect", to)
			if err != nil {
				return err
			}
			col = container.Collect{Path: name, To: abs}
		} else if !p.jsonResult && !c.IsSet("result") && !c.Bool("detach") {
			return &usage{fmt.Sprintf("--collect %q: there is no result that could hold it", text), "add --json or --result, or name a new file of yours: PATH:DST"}
		}
		req.Collect = append(req.Collect, col)
	}
	req.Fresh, req.Answer = c.StringSlice("fresh"), c.Bool("answer")
	switch how := c.String("on-output-limit"); how {
	case "truncate":
	case "kill":
		req.KillOnOutput = true
	default:
		return &usage{fmt.Sprintf("--on-output-limit %q is unknown", how), "truncate or kill"}
	}
	return nil
}

func cutLast(text string) (before, after string, ok bool) {
	at := strings.LastIndexByte(text, ':')
	if at <= 0 || at == len(text)-1 {
		return text, "", false
	}
	return text[:at], text[at+1:], true
}

// onHost makes a path of the caller's absolute. It is not cleaned: behind a link ".." is not what is left of it.
func (p *program) onHost(what, name string) (string, error) {
	switch {
	case name == "":
		return "", &usage{what + ": the path on the host is empty", ""}
	case filepath.IsAbs(name):
		return name, nil
	case p.cwdErr != nil:
		return "", &usage{"the current directory does not exist any more", "give an absolute path"}
	}
	return p.cwd + "/" + name, nil
}

// readPuts reads what --put names, now that it is known what the program can have made links to.
func (p *program) readPuts(sb *container.Sandbox, req *container.Request) error {
	for _, put := range p.puts {
		list, err := p.hostFiles(sb, put[0], put[1], transfer.DefaultMax)
		if err != nil {
			return err
		}
		req.Put = append(req.Put, list...)
	}
	return nil
}

// hostFiles reads a file or directory of the host as what it is to be inside.
func (p *program) hostFiles(sb *container.Sandbox, src, dst string, limit int64) ([]container.Put, error) {
	name, err := p.onHost("put", src)
	if err != nil {
		return nil, err
	}
	files, dropped, err := sb.ReadHost(name, limit)
	if err != nil {
		return nil, err
	}
	for _, d := range dropped {
		p.warn(fmt.Sprintf("not put: %q: %s", d.Path, d.Why))
	}
	if dst == "." || strings.HasSuffix(dst, "/") {
		dst = path.Join(dst, filepath.Base(name))
	}
	var list []container.Put
	for _, f := range files {
		if f.Mode&fs.ModeSymlink != 0 {
			p.warn(fmt.Sprintf("not put: %q: a link", path.Join(src, f.Path)))
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

// sayCollected names what could not be collected to the host; what a result holds says it itself.
func (p *program) sayCollected(r *result.Result) {
	for _, d := range r.Dropped {
		p.warn(fmt.Sprintf("not collected: %q: %s", d.Path, d.Why))
	}
	for _, c := range r.Collected {
		if c.To == "" || c.Error == nil {
			continue
		}
		p.complain(errorText{c.Error.Code, c.Error.Message, c.Error.Hint})
		if p.status == 0 {
			p.status = exitLauncher
		}
	}
}

func (p *program) putCommand() *cli.Command {
	return &cli.Command{
		Name: "put", Usage: "write a file or a directory of yours into a sandbox", ArgsUsage: "ID SRC DST",
		Description: "DST is relative to the working directory inside, and cannot leave it. SRC - is standard input. The file is written with the\n" +
			"rights of the sandbox's programs, as one of them would.",
		Flags: transferFlags(),
		Action: p.transferAction(func(sb *container.Sandbox, cwd, src, dst string, limit int64) error {
			files, err := p.filesToPut(sb, src, dst, limit)
			if err != nil {
				return err
			}
			return sb.Put(cwd, files)
		}),
	}
}

// transferAction is the action of put and get: what is done with the sandbox, the source and the destination that are named.
func (p *program) transferAction(do func(sb *container.Sandbox, cwd, src, dst string, limit int64) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		args, limit, err := transferArguments(c)
		if err != nil {
			return err
		}
		return p.withSandbox(c, args[0], func(sb *container.Sandbox) error { return do(sb, c.String("cwd"), args[1], args[2], limit) })
	}
}

func (p *program) filesToPut(sb *container.Sandbox, src, dst string, limit int64) ([]container.Put, error) {
	if src != "-" {
		return p.hostFiles(sb, src, dst, limit)
	}
	data, err := io.ReadAll(io.LimitReader(p.in, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read standard input: %w", err)
	case int64(len(data)) > limit:
		return nil, &usage{fmt.Sprintf("standard input is larger than %d bytes", limit), "allow more: --max"}
	}
	return []container.Put{{Path: dst, Data: data}}, nil
}

func transferArguments(c *cli.Context) (args []string, limit int64, err error) {
	if args, err = arguments(c); err != nil {
		return nil, 0, err
	}
	if len(args) != 3 {
		return nil, 0, &usage{"name a sandbox, a source and a destination", helpHint(c)}
	}
	if limit, err = policy.ParseSize(c.String("max")); err != nil || limit < 1 {
		return nil, 0, &usage{fmt.Sprintf("--max %q is no size", c.String("max")), "bytes, or a whole number with K, M, G or T"}
	}
	return args, limit, nil
}

func (p *program) getCommand() *cli.Command {
	return &cli.Command{
		Name: "get", Usage: "read a file or a directory out of a sandbox", ArgsUsage: "ID SRC DST",
		Description: "SRC is relative to the working directory inside, and cannot leave it. DST is a new directory, or a file, which is replaced;\n" +
			"- is standard output. Links that leave SRC, pipes, sockets, devices and set-user-id bits are left out, and named.",
		Flags: transferFlags(),
		Action: p.transferAction(func(sb *container.Sandbox, cwd, src, dst string, limit int64) error {
			files, err := sb.Files(cwd)
			if err != nil {
				return err
			}
			defer files.Close()
			return p.get(sb, files, src, dst, limit)
		}),
	}
}

func (p *program) get(sb *container.Sandbox, files *container.Files, src, dst string, limit int64) error {
	var dropped []transfer.Dropped
	var err error
	if dst == "-" {
		dropped, err = files.Get(src, limit, stdoutSink{p})
	} else {
		if dst, err = p.onHost("get", dst); err != nil {
			return err
		}
		if info, serr := os.Stat(dst); serr == nil && info.IsDir() && path.Base(src) != "." {
			dst = path.Join(dst, path.Base(src))
		}
		dropped, err = sb.GetTo(files, src, dst, limit)
	}
	for _, d := range dropped {
		p.warn(fmt.Sprintf("left out: %q: %s", d.Path, d.Why))
	}
	return err
}

// stdoutSink writes one file to standard output.
type stdoutSink struct{ p *program }

func (s stdoutSink) Dir(string, fs.FileMode) error {
	return &usage{"a directory cannot be written to standard output", "name a new directory"}
}

func (s stdoutSink) File(_ string, _ fs.FileMode, data io.Reader) error {
	_, err := io.Copy(struct{ io.Writer }{s.p.out}, data)
	return err
}

func (s stdoutSink) Link(string, string) error { return nil }
