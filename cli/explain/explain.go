// Package explain answers why a path, a host, a variable or a program is, or is not, inside, and prints the whole view. It runs nothing
// and resolves no name: spec and rootfs know the reasons, here they become text, JSON and a page.
package explain

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/cli/plan"
	"github.com/sandboxrun/sandboxrun/cli/show"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/rootfs/explain"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
	"github.com/sandboxrun/sandboxrun/spec"
	"github.com/sandboxrun/sandboxrun/spec/answer"
)

// Kinds of asks.
const (
	askPath = "path"
	askHost = "host"
	askEnv  = "variable"
	askExe  = "program"
)

// Ask is one path, host, variable or program to explain.
type Ask struct{ kind, name string }

// askFlag is a repeatable flag that adds an ask.
type askFlag struct {
	kind string
	list *[]Ask
}

// Set adds a value to the list.
func (f *askFlag) Set(name string) error {
	if name != flags.Again {
		*f.list = append(*f.list, Ask{f.kind, name})
	}
	return nil
}

// String is for the library, which copies values through it.
func (f *askFlag) String() string {
	if f.list == nil || len(*f.list) == 0 {
		return ""
	}
	return flags.Again
}

// Command is the command explain.
func Command(p *caller.Caller) *cli.Command {
	asks, grants := &[]Ask{}, &plan.Grants{}
	option := func(name, kind, usage string) cli.Flag {
		return &cli.GenericFlag{Name: name, Value: &askFlag{kind, asks}, Usage: usage}
	}
	return &cli.Command{
		Name: "explain", Usage: "say whether the program can reach a path, host or variable, and why", ArgsUsage: "[PATH | HOST:PORT | VARIABLE]...",
		Description: "A name with a slash is a path, a name with a port is a host, a name in capital letters is a variable. Without an\n" +
			"argument it prints the program's whole view as a tree. It runs nothing and resolves no name.\n" +
			"Exit status: 0 if the program can reach everything that was asked for, else 1.",
		Flags: append([]cli.Flag{
			flags.Policy(), flags.JSON(),
			option("path", askPath, "explain `PATH`, as the program would use it"),
			option("host", askHost, "explain `HOST:PORT`"),
			option("env", askEnv, "explain the variable `NAME`"),
			option("exe", askExe, "explain the program `NAME`: where the PATH inside finds it, and which interpreter and library is missing"),
			&cli.StringFlag{Name: "view", Usage: "explain what an exec with --view `NAME` sees"},
			&cli.StringFlag{Name: "html", Usage: "write the whole view to `FILE` as one HTML page"},
		}, grants.Flags()...),
		Action: func(c *cli.Context) error { return run(p, c, asks, *grants) },
	}
}

func run(p *caller.Caller, c *cli.Context, asks *[]Ask, grants plan.Grants) error {
	var wrong error
	err := flags.Each(c, func(arg string) {
		a, err := Classify(arg)
		if err != nil && wrong == nil {
			wrong = err
		}
		*asks = append(*asks, a)
	})
	if err == nil {
		err = wrong
	}
	if err != nil {
		return err
	}
	list := *asks
	if c.IsSet("html") && (c.String("html") == "" || len(list) > 0 || c.Bool("json")) {
		return fault.Usage("--html goes with no argument and without --json", "sandboxrun explain --html view.html")
	}
	d, err := plan.Decide(p, plan.Source{Name: c.String("policy"), Workspace: true, View: c.String("view"), Grants: grants, Trust: p.Trust(c)})
	if err != nil {
		return err
	}
	x, err := New(p, d)
	if err != nil {
		return err
	}
	switch {
	case c.IsSet("html"):
		return x.html(c.String("html"))
	case len(list) == 0:
		return x.tree(c.Bool("json"))
	}
	return x.answers(list, c.Bool("json"))
}

// Explainer answers the asks.
type Explainer struct {
	*caller.Caller
	d     plan.Decision
	files *explain.Explainer
}

// New is an explainer of a decision.
func New(p *caller.Caller, d plan.Decision) (*Explainer, error) {
	groups, err := os.Getgroups()
	if err != nil {
		return nil, fmt.Errorf("read own groups: %w", err)
	}
	return &Explainer{p, d, spec.Explainer(d.Policy, d.Plan, d.Host, groups)}, nil
}

// reply is the explanation of one ask.
type reply struct {
	kind, title, is string
	ok              bool
	why             []string
	hint            string
	details         any
}

func (x *Explainer) answers(list []Ask, asJSON bool) error {
	if asJSON {
		all, err := x.Each(list)
		if err == nil {
			x.PrintJSON(all)
		}
		return err
	}
	for _, one := range list {
		a, err := x.answer(one)
		if err != nil {
			return err
		}
		if !a.ok {
			x.Status = fault.ExitRefused
		}
		x.print(a)
	}
	return nil
}

// Each answers for programs.
func (x *Explainer) Each(list []Ask) ([]any, error) {
	all := make([]any, 0, len(list))
	for _, one := range list {
		a, err := x.answer(one)
		if err != nil {
			return nil, err
		}
		if !a.ok {
			x.Status = fault.ExitRefused
		}
		all = append(all, map[string]any{"kind": a.kind, "asked": one.name, "ok": a.ok, "is": a.is, "details": a.details})
	}
	return all, nil
}

func (x *Explainer) answer(one Ask) (*reply, error) {
	if one.name == "" {
		return nil, fault.Usage("the name of a "+one.kind+" is empty", "sandboxrun explain --help")
	}
	switch one.kind {
	case askPath:
		return x.path(one.name)
	case askHost:
		return x.netHost(one.name)
	case askEnv:
		a := answer.Variable(x.d.Policy, x.d.Plan, x.Env, one.name)
		return &reply{askEnv, pathname.Printable(one.name), a.Is, a.OK, a.Why, a.Hint, a}, nil
	}
	env := map[string]string{}
	for _, kv := range x.d.Plan.Exec.Environ(x.Env, nil) {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	a := x.files.Program(explain.Asked{
		Name: one.name, Dir: x.d.Plan.Exec.Dir, Env: env, CallerPath: x.Env["PATH"], Arch: x.d.Host.Arch,
	})
	title := pathname.Printable(one.name)
	if a.File != nil {
		title = arrow(a.Path, a.File.Real)
	}
	return &reply{askExe, title, a.Is, a.OK, append(a.Why, needLines(a.Needs)...), a.Hint, a}, nil
}

// needLines formats one line for each file that a program needs.
func needLines(needs []explain.Need) []string {
	lines := make([]string, 0, len(needs))
	for _, n := range needs {
		where := pathname.Printable(n.Path)
		if !n.OK {
			where = "missing: " + n.Reason
		}
		line := fmt.Sprintf("%s %s, for %s: %s", n.Kind, pathname.Printable(n.Name), pathname.Printable(filepath.Base(n.By)), where)
		if n.OK && n.Name == n.Path {
			line = fmt.Sprintf("%s %s, for %s", n.Kind, pathname.Printable(n.Name), pathname.Printable(filepath.Base(n.By)))
		}
		lines = append(lines, line)
	}
	return lines
}

func (x *Explainer) path(name string) (*reply, error) {
	full, err := absolute(x.Caller, name)
	if err != nil {
		return nil, err
	}
	e := x.files.Explain(full)
	return &reply{askPath, arrow(full, e.Real), e.Is, e.Inside(), e.Why, e.Hint, e}, nil
}

// absolute makes a path absolute as the caller's shell would. It does not clean the path, because the meaning of ".." depends on
// symlinks.
func absolute(p *caller.Caller, name string) (string, error) {
	first, rest, _ := strings.Cut(name, "/")
	switch {
	case first == "~" && p.Env["HOME"] != "":
		return p.Env["HOME"] + "/" + rest, nil
	case strings.HasPrefix(first, "~"):
		return "", fault.Usage(fmt.Sprintf("%q: no such home is known", name), "write the whole path, or ./"+name+" for a file of that name")
	case strings.HasPrefix(name, "/"):
		return name, nil
	case p.CwdErr != nil:
		return "", fault.Usage(p.NoCwd(), "write the whole path")
	}
	return p.Cwd + "/" + strings.TrimPrefix(name, "./"), nil
}

func (x *Explainer) netHost(text string) (*reply, error) {
	host, port, ok := splitHost(text)
	if !ok {
		return nil, fault.Usage(fmt.Sprintf("%q is no host with a port", text), "HOST:PORT, or [ADDRESS]:PORT for IPv6")
	}
	a, err := answer.Host(x.d.Policy, x.d.Plan, host, port)
	if err != nil {
		return nil, err
	}
	return &reply{askHost, pathname.Printable(a.Asked), a.Is, a.OK, a.Why, a.Hint, a}, nil
}

// splitHost splits at the last colon. The network's rules judge the part before it.
func splitHost(text string) (host string, port int, ok bool) {
	i := strings.LastIndexByte(text, ':')
	if i <= 0 || strings.Contains(text[:i], ":") && !strings.HasPrefix(text, "[") {
		return "", 0, false
	}
	port, err := strconv.Atoi(text[i+1:])
	return text[:i], port, err == nil && port >= 0 && text[i+1] != '+'
}

// isVariable reports whether a name looks like a variable's: capital letters, digits and "_".
func isVariable(name string) bool {
	return name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == "" && (name[0] < '0' || name[0] > '9')
}

// Classify finds the kind of an argument by its form.
func Classify(arg string) (Ask, error) {
	_, _, isHost := splitHost(arg)
	switch {
	case strings.Contains(arg, "://"):
		return Ask{}, fault.Usage(fmt.Sprintf("%q is a URL", arg), "give its host and port: HOST:PORT")
	case strings.Contains(arg, "/"), strings.HasPrefix(arg, "."), strings.HasPrefix(arg, "~"):
		return Ask{askPath, arg}, nil
	case isHost:
		return Ask{askHost, arg}, nil
	case isVariable(arg):
		return Ask{askEnv, arg}, nil
	}
	return Ask{}, fault.Usage(
		fmt.Sprintf("%q may be many things", arg),
		"a path has a slash (./NAME), a host a port (NAME:443), a variable capital letters; or say --path, --host, --env or --exe",
	)
}

// print writes an answer for people: the answer in one line, the reasons below.
func (x *Explainer) print(a *reply) {
	colour, off := x.Colour(map[bool]string{true: show.Green, false: show.Alarm}[a.ok])
	fmt.Fprintf(x.Out, "%s%s:%s %s\n", colour, a.is, off, a.title)
	for _, line := range a.why {
		fmt.Fprintf(x.Out, "  %s\n", line)
	}
	if a.hint != "" {
		fmt.Fprintf(x.Out, "  hint: %s\n", a.hint)
	}
}

// arrow formats a path and the target of its symlinks.
func arrow(from, to string) string {
	if from == to || to == "" {
		return pathname.Printable(from)
	}
	return pathname.Printable(from) + " → " + pathname.Printable(to)
}
