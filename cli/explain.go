package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/record"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec"
)

// Kinds of asks.
const (
	askPath = "path"
	askHost = "host"
	askEnv  = "variable"
	askExe  = "program"
)

// ask is one path, host, variable or program to explain.
type ask struct{ kind, name string }

// askFlag is a repeatable flag that adds an ask.
type askFlag struct {
	kind string
	list *[]ask
}

// again is the flag's String after Set. The library copies values through it, and Set must not add that copy to the list.
const again = "\x00"

// Set adds a value to the list.
func (f *askFlag) Set(name string) error {
	if name != again {
		*f.list = append(*f.list, ask{f.kind, name})
	}
	return nil
}

// String is for the library, which copies values through it.
func (f *askFlag) String() string {
	if f.list == nil || len(*f.list) == 0 {
		return ""
	}
	return again
}

func (p *program) explainCommand() *cli.Command {
	asks := &[]ask{}
	option := func(name, kind, usage string) cli.Flag {
		return &cli.GenericFlag{Name: name, Value: &askFlag{kind, asks}, Usage: usage}
	}
	return &cli.Command{
		Name: "explain", Usage: "say whether the program can reach a path, host or variable, and why", ArgsUsage: "[PATH | HOST:PORT | VARIABLE]...",
		Description: "A name with a slash is a path, a name with a port is a host, a name in capital letters is a variable. Without an\n" +
			"argument it prints the program's whole view as a tree. It runs nothing and resolves no name.\n" +
			"Exit status: 0 if the program can reach everything that was asked for, else 1.",
		Flags: append([]cli.Flag{
			policyFlag(), jsonFlag(),
			option("path", askPath, "explain `PATH`, as the program would use it"),
			option("host", askHost, "explain `HOST:PORT`"),
			option("env", askEnv, "explain the variable `NAME`"),
			option("exe", askExe, "explain the program `NAME`: where the PATH inside finds it, and which interpreter and library is missing"),
			&cli.StringFlag{Name: "html", Usage: "write the whole view to `FILE` as one HTML page"},
		}, p.grantFlags()...),
		Action: func(c *cli.Context) error { return p.explain(c, asks) },
	}
}

func (p *program) explain(c *cli.Context, asks *[]ask) error {
	var wrong error
	err := eachArgument(c, func(arg string) {
		a, err := classify(arg)
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
		return &usage{"--html goes with no argument and without --json", "sandboxrun explain --html view.html"}
	}
	d, err := p.decide(c.String("policy"), true, nil, p.trust(c))
	if err != nil {
		return err
	}
	x, err := p.explainer(d)
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

// explainer answers the asks.
type explainer struct {
	*program
	d     decision
	files *rootfs.Explainer
}

func (p *program) explainer(d decision) (*explainer, error) {
	groups, err := os.Getgroups()
	if err != nil {
		return nil, fmt.Errorf("read own groups: %w", err)
	}
	return &explainer{p, d, spec.Explainer(d.policy, d.plan, d.host, groups)}, nil
}

// answer is the explanation of one ask.
type answer struct {
	kind, title, is string
	ok              bool
	why             []string
	hint            string
	details         any
}

func (x *explainer) answers(list []ask, asJSON bool) error {
	if asJSON {
		all, err := x.each(list)
		if err == nil {
			x.printJSON(all)
		}
		return err
	}
	for _, one := range list {
		a, err := x.answer(one)
		if err != nil {
			return err
		}
		if !a.ok {
			x.status = exitRefused
		}
		x.print(a)
	}
	return nil
}

// each answers for programs.
func (x *explainer) each(list []ask) ([]any, error) {
	all := make([]any, 0, len(list))
	for _, one := range list {
		a, err := x.answer(one)
		if err != nil {
			return nil, err
		}
		if !a.ok {
			x.status = exitRefused
		}
		all = append(all, map[string]any{"kind": a.kind, "asked": one.name, "ok": a.ok, "is": a.is, "details": a.details})
	}
	return all, nil
}

func (x *explainer) answer(one ask) (*answer, error) {
	if one.name == "" {
		return nil, &usage{"the name of a " + one.kind + " is empty", "sandboxrun explain --help"}
	}
	switch one.kind {
	case askPath:
		return x.path(one.name)
	case askHost:
		return x.netHost(one.name)
	case askEnv:
		a := spec.ExplainVariable(x.d.policy, x.d.plan, x.env, one.name, record.Secret)
		return &answer{askEnv, plain(one.name), a.Is, a.OK, a.Why, a.Hint, a}, nil
	}
	env := map[string]string{}
	for _, kv := range x.d.plan.Exec.Environ(x.env, nil) {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	a := x.files.Program(rootfs.Asked{
		Name: one.name, Dir: x.d.plan.Exec.Dir, Env: env, CallerPath: x.env["PATH"], Arch: x.d.host.Arch,
	})
	title := plain(one.name)
	if a.File != nil {
		title = arrow(a.Path, a.File.Real)
	}
	return &answer{askExe, title, a.Is, a.OK, append(a.Why, needLines(a.Needs)...), a.Hint, a}, nil
}

// needLines formats one line for each file that a program needs.
func needLines(needs []rootfs.Need) []string {
	lines := make([]string, 0, len(needs))
	for _, n := range needs {
		where := plain(n.Path)
		if !n.OK {
			where = "missing: " + n.Reason
		}
		line := fmt.Sprintf("%s %s, for %s: %s", n.Kind, plain(n.Name), plain(filepath.Base(n.By)), where)
		if n.OK && n.Name == n.Path {
			line = fmt.Sprintf("%s %s, for %s", n.Kind, plain(n.Name), plain(filepath.Base(n.By)))
		}
		lines = append(lines, line)
	}
	return lines
}

func (x *explainer) path(name string) (*answer, error) {
	full, err := x.absolute(name)
	if err != nil {
		return nil, err
	}
	e := x.files.Explain(full)
	return &answer{askPath, arrow(full, e.Real), e.Is, e.Inside(), e.Why, e.Hint, e}, nil
}

// absolute makes a path absolute as the caller's shell would. It does not clean the path, because the meaning of ".." depends on
// symlinks.
func (p *program) absolute(name string) (string, error) {
	first, rest, _ := strings.Cut(name, "/")
	switch {
	case first == "~" && p.env["HOME"] != "":
		return p.env["HOME"] + "/" + rest, nil
	case strings.HasPrefix(first, "~"):
		return "", &usage{fmt.Sprintf("%q: no such home is known", name), "write the whole path, or ./" + name + " for a file of that name"}
	case strings.HasPrefix(name, "/"):
		return name, nil
	case p.cwdErr != nil:
		return "", &usage{"the current directory no longer exists", "write the whole path"}
	}
	return p.cwd + "/" + strings.TrimPrefix(name, "./"), nil
}

func (x *explainer) netHost(text string) (*answer, error) {
	host, port, ok := splitHost(text)
	if !ok {
		return nil, &usage{fmt.Sprintf("%q is no host with a port", text), "HOST:PORT, or [ADDRESS]:PORT for IPv6"}
	}
	a, err := spec.ExplainHost(x.d.policy, x.d.plan, host, port)
	if err != nil {
		return nil, err
	}
	return &answer{askHost, plain(a.Asked), a.Is, a.OK, a.Why, a.Hint, a}, nil
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

// classify finds the kind of an argument by its form.
func classify(arg string) (ask, error) {
	_, _, isHost := splitHost(arg)
	switch {
	case strings.Contains(arg, "://"):
		return ask{}, &usage{fmt.Sprintf("%q is a URL", arg), "give its host and port: HOST:PORT"}
	case strings.Contains(arg, "/"), strings.HasPrefix(arg, "."), strings.HasPrefix(arg, "~"):
		return ask{askPath, arg}, nil
	case isHost:
		return ask{askHost, arg}, nil
	case isVariable(arg):
		return ask{askEnv, arg}, nil
	}
	return ask{}, &usage{
		fmt.Sprintf("%q may be many things", arg),
		"a path has a slash (./NAME), a host a port (NAME:443), a variable capital letters; or say --path, --host, --env or --exe",
	}
}

// print writes an answer for people: the answer in one line, the reasons below.
func (x *explainer) print(a *answer) {
	colour, off := "", ""
	if x.colours(x.out.f) {
		colour, off = map[bool]string{true: "\x1b[32m", false: "\x1b[1;31m"}[a.ok], normal
	}
	fmt.Fprintf(x.out, "%s%s:%s %s\n", colour, a.is, off, a.title)
	for _, line := range a.why {
		fmt.Fprintf(x.out, "  %s\n", line)
	}
	if a.hint != "" {
		fmt.Fprintf(x.out, "  hint: %s\n", a.hint)
	}
}

// arrow formats a path and the target of its symlinks.
func arrow(from, to string) string {
	if from == to || to == "" {
		return plain(from)
	}
	return plain(from) + " → " + plain(to)
}

// plain quotes a name that has control characters, so that it can neither control a terminal nor end a line.
func plain(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) || r == '\ufffd' }) {
		return strconv.QuoteToASCII(s)
	}
	return s
}
