package run

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/files"
	"github.com/sandboxrun/sandboxrun/container"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/transfer"
)

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
func (p *Commands) carry(c *cli.Context, req *container.Request) error {
	for _, text := range c.StringSlice("put") {
		src, dst, ok := cutLast(text)
		if !ok {
			return fault.Usage(fmt.Sprintf("--put %q is not SRC:DST", text), "a path of yours, and one below the working directory inside")
		}
		p.puts = append(p.puts, [2]string{src, dst})
	}
	for _, text := range c.StringSlice("collect") {
		col := container.Collect{Path: text}
		if name, to, ok := cutLast(text); ok {
			abs, err := p.OnHost("collect", to)
			if err != nil {
				return err
			}
			col = container.Collect{Path: name, To: abs}
		} else if !p.jsonResult && !c.IsSet("result") && !c.Bool("detach") {
			return fault.Usage(fmt.Sprintf("--collect %q: there is no result that could hold it", text), "add --json or --result, or name a new file of yours: PATH:DST")
		}
		req.Collect = append(req.Collect, col)
	}
	req.Fresh, req.Answer = c.StringSlice("fresh"), c.Bool("answer")
	switch how := c.String("on-output-limit"); how {
	case "truncate":
	case "kill":
		req.KillOnOutput = true
	default:
		return fault.Usage(fmt.Sprintf("--on-output-limit %q is unknown", how), "truncate or kill")
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

// readPuts reads what --put names, now that it is known what the program can have made links to.
func (p *Commands) readPuts(sb *container.Sandbox, req *container.Request) error {
	for _, put := range p.puts {
		list, err := files.FromHost(p.Caller, sb, put[0], put[1], transfer.DefaultMax)
		if err != nil {
			return err
		}
		req.Put = append(req.Put, list...)
	}
	return nil
}

// sayCollected names what could not be collected to the host; what a result holds says it itself.
func (p *Commands) sayCollected(r *result.Result) {
	for _, d := range r.Dropped {
		p.Warn(fmt.Sprintf("not collected: %q: %s", d.Path, d.Why))
	}
	for _, c := range r.Collected {
		if c.To == "" || c.Error == nil {
			continue
		}
		p.Complain(c.Error)
		if p.Status == 0 {
			p.Status = fault.ExitLauncher
		}
	}
}
