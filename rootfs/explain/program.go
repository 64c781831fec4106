package explain

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/elf"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
	"github.com/sandboxrun/sandboxrun/rootfs/pathname"
)

// Asked is a program by the name under which it would be started.
type Asked struct {
	Name string
	Dir  string            // the working directory inside
	Env  map[string]string // the program's environment
	// CallerPath is the caller's own PATH: where to say that the host has a program which is not inside.
	CallerPath string
	Arch       string // GOARCH
}

// Needs of a program.
const (
	NeedInterpreter = "interpreter" // what stands behind "#!"
	NeedLoader      = "loader"      // what an ELF file is loaded by
	NeedLibrary     = "library"
)

// Need is a file without which a program does not start.
type Need struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"` // as it is asked for
	By     string `json:"by"`   // the path of what asks
	OK     bool   `json:"ok"`   // it is inside, and can be used
	Path   string `json:"path,omitempty"`
	Host   string `json:"host,omitempty"`   // where the host has what is not inside
	Reason string `json:"reason,omitempty"` // why not
}

// Program is what there is to say of a program: whether it would start, and what it needs for that. What it asks for while
// it runs (modules, plug-ins, files) nobody can know.
type Program struct {
	Name  string       `json:"name"`
	Path  string       `json:"path,omitempty"` // where it was found
	OK    bool         `json:"ok"`             // it is inside and can be started
	Is    string       `json:"is"`             // in a few words
	File  *Explanation `json:"file,omitempty"`
	Needs []Need       `json:"needs"`
	Why   []string     `json:"why"`
	Hint  string       `json:"hint,omitempty"`
}

// maxScripts is how many scripts the kernel follows one from another.
const maxScripts = 5

// Program finds a program as an exec would, and follows what it needs.
func (x *Explainer) Program(a Asked) *Program {
	x.prepare()
	p := &Program{Name: a.Name, Needs: []Need{}, Why: []string{}}
	candidates := a.candidates(a.Env["PATH"])
	for _, c := range candidates {
		if e := x.Explain(c); e.Inside() && e.Type == typeFile && e.info.Mode.Perm()&0o111 != 0 {
			p.Path, p.File = c, e
			break
		}
	}
	if p.File == nil {
		x.notFound(p, a, candidates)
		return p
	}
	if p.Path != p.Name {
		p.say("PATH leads to %s", pathname.Printable(p.Path))
	}
	p.Why = append(p.Why, p.File.Why...)
	if !p.File.Executable {
		p.Is = "inside, and cannot be executed"
		if !p.File.unlisted { // else it has been said
			p.say("it is %s: the program runs as %s", x.owned(p.File.info), x.Who)
		}
		return p
	}
	l := &loading{Explainer: x, p: p, a: a}
	l.program(p.Path, 0)
	l.conclude()
	return p
}

func (p *Program) say(format string, args ...any) {
	p.Why = append(p.Why, fmt.Sprintf(format, args...))
}

// candidates are the paths that a name may mean.
func (a Asked) candidates(pathVar string) []string {
	if strings.Contains(a.Name, "/") {
		if strings.HasPrefix(a.Name, "/") {
			return []string{a.Name}
		}
		return []string{path.Join(a.Dir, a.Name)}
	}
	var list []string
	for d := range strings.SplitSeq(pathVar, ":") {
		if strings.HasPrefix(d, "/") && a.Name != "" { // as an exec does: a relative one would let the directory decide
			list = append(list, path.Join(d, a.Name))
		}
	}
	return list
}

// notFound says why, and where the host has a program of that name.
func (x *Explainer) notFound(p *Program, a Asked, candidates []string) {
	p.Is = "not inside"
	for _, c := range candidates {
		if e := x.Explain(c); e.Inside() {
			p.Is, p.Path, p.File = "inside, and cannot be executed", c, e
			p.say("%s is a %s without the permission to execute it", pathname.Printable(c), e.Type)
			return
		}
	}
	if !strings.Contains(a.Name, "/") {
		p.say("it is in no directory of the program's PATH, %s", pathname.Printable(a.Env["PATH"]))
	}
	if c := x.hostProgram(append(candidates, a.candidates(a.CallerPath)...)); c != "" {
		e := x.Explain(c)
		p.say("the host has it as %s", pathname.Printable(c))
		p.Why = append(p.Why, e.Why...)
		p.Hint = e.Hint
		if e.Inside() {
			p.Hint = "env.set = { PATH = " + tomlString(path.Dir(c)+":"+a.Env["PATH"]) + " }"
		}
		return
	}
	if len(candidates) == 1 {
		p.Why = append(p.Why, x.Explain(candidates[0]).Why...)
	}
}

// loading follows a program to all that it needs.
type loading struct {
	*Explainer
	p      *Program
	a      Asked
	failed bool
}

// conclude makes one verdict of it.
func (l *loading) conclude() {
	var missing []string
	for _, n := range l.p.Needs {
		if !n.OK {
			missing = append(missing, n.Name)
			if n.Host != "" {
				l.p.Hint = l.addHint(n.Host)
			}
		}
	}
	switch {
	case len(missing) > 0:
		l.p.Is = "inside, and cannot be started: " + strings.Join(missing, ", ") + " missing"
	case l.failed:
		l.p.Is = "inside, and cannot be started"
	default:
		l.p.OK, l.p.Is = true, "inside, can be started"
	}
}

// addHint puts a path into the list that would show all that is missing.
func (l *loading) addHint(host string) string {
	if l.p.Hint == "" || strings.Contains(l.p.Hint, tomlString(host)) {
		return grantHint(host)
	}
	return strings.TrimSuffix(l.p.Hint, "]") + ", " + tomlString(host) + "]"
}

func (l *loading) fail(format string, args ...any) {
	l.failed = true
	l.p.say(format, args...)
}

// open opens what is at a path inside, to read what it needs.
func (x *Explainer) open(e *Explanation) (hostfs.File, error) {
	if e.Kind == rootfs.PlaceHost {
		if t, ok := x.Tree.(hostfs.Opener); ok {
			return t.Open(e.Host)
		}
		return nil, fs.ErrPermission
	}
	content := x.seen.Entries[e.Real].Content
	if e.Kind == rootfs.PlaceGenerated {
		content = e.spot.Mount.Content
	}
	return nopCloser{strings.NewReader(content)}, nil
}

type nopCloser struct{ io.ReaderAt }

func (nopCloser) Close() error { return nil }

// program follows one file: a script to its interpreter, an ELF file to its loader and libraries.
func (l *loading) program(name string, depth int) {
	e := l.resolve(name)
	f, err := l.open(e)
	if err != nil {
		l.p.say("%s cannot be read here, so what it needs is not known", pathname.Printable(name))
		return
	}
	defer f.Close()
	head := make([]byte, 256) // what the kernel reads
	n, _ := f.ReadAt(head, 0)
	head = head[:n]
	words, isScript := elf.Script(head)
	switch {
	case isScript:
		l.script(name, words, depth)
	case elf.Is(head):
		l.elf(name, e.Real, f)
	default:
		l.fail("%s is neither an ELF file nor a script that begins with #!: the kernel does not start it", pathname.Printable(name))
	}
}

// script follows "#!".
func (l *loading) script(name string, fields []string, depth int) {
	if len(fields) == 0 {
		l.fail("%s names no interpreter behind #!", pathname.Printable(name))
		return
	}
	interp := fields[0]
	switch {
	case !strings.HasPrefix(interp, "/"):
		l.fail("%s asks for the interpreter %s, which is not an absolute path", pathname.Printable(name), pathname.Printable(interp))
		return
	case depth >= maxScripts:
		l.fail("more than %d scripts are interpreters of one another", maxScripts)
		return
	}
	if !l.executable(NeedInterpreter, interp, interp, name) {
		return
	}
	l.program(interp, depth+1)
	if path.Base(interp) == "env" {
		l.throughEnv(name, fields[1:], depth)
	}
}

// throughEnv follows "#!/usr/bin/env NAME", which is how most scripts name their interpreter.
func (l *loading) throughEnv(name string, args []string, depth int) {
	for len(args) > 0 && (strings.HasPrefix(args[0], "-") || strings.Contains(args[0], "=")) {
		args = args[1:]
	}
	if len(args) == 0 {
		return
	}
	other := Asked{Name: args[0], Dir: l.a.Dir}
	candidates := other.candidates(l.a.Env["PATH"])
	n := Need{Kind: NeedInterpreter, Name: args[0], By: name, Reason: "in no directory of the program's PATH"}
	for _, c := range candidates {
		if e := l.resolve(c); e.Inside() && e.Executable {
			n.OK, n.Path, n.Reason = true, c, ""
			break
		}
	}
	if !n.OK {
		n.Host = l.hostProgram(append(candidates, other.candidates(l.a.CallerPath)...))
	}
	l.p.Needs = append(l.p.Needs, n)
	if n.OK && depth < maxScripts {
		l.program(n.Path, depth+1)
	}
}

// hostProgram is the first of some paths at which the host has a program.
func (x *Explainer) hostProgram(paths []string) string {
	for _, p := range paths {
		t, err := hostfs.Follow(x.seen.Tree, path.Clean(p))
		if err == nil && t.Info.Mode.IsRegular() && t.Info.Mode.Perm()&0o111 != 0 {
			return p
		}
	}
	return ""
}

// executable notes a need that the kernel itself opens.
func (l *loading) executable(kind, name, at, by string) bool {
	for _, n := range l.p.Needs {
		if n.Kind == kind && n.Path == at {
			return n.OK
		}
	}
	e := l.Explain(at)
	n := Need{Kind: kind, Name: name, By: by, OK: e.Inside() && e.Executable, Path: at}
	if !n.OK {
		n.Reason = strings.Join(e.Why, "; ")
		if e.Inside() {
			n.Reason = "it cannot be executed: it is " + l.owned(e.info)
			if e.unlisted {
				n.Reason = "processes.execute does not name it"
			}
		} else if _, err := hostfs.Follow(l.seen.Tree, path.Clean(at)); err == nil {
			n.Host = at
		}
	}
	l.p.Needs = append(l.p.Needs, n)
	return n.OK
}

// machines are the numbers of ELF, by GOARCH.
func machines() map[string]int { return map[string]int{"amd64": 62, "arm64": 183} }

func (l *loading) elf(name, real string, f hostfs.File) {
	needs, err := elf.Read(f)
	if err != nil {
		l.fail("%s: %v", pathname.Printable(name), err)
		return
	}
	if m, ok := machines()[l.a.Arch]; ok && (needs.Machine != m || needs.Class != 2) {
		l.fail("%s is for another kind of machine (ELF machine %d, %d bits), whose system calls the sandbox ends",
			pathname.Printable(name), needs.Machine, needs.Class*32)
		return
	}
	if needs.Interp == "" {
		l.p.say("%s is static: it needs no loader and no libraries", pathname.Printable(name))
		return
	}
	if !strings.HasPrefix(needs.Interp, "/") {
		l.fail("%s asks for the loader %s, which is not an absolute path", pathname.Printable(name), strconv.Quote(needs.Interp))
		return
	}
	l.executable(NeedLoader, needs.Interp, needs.Interp, name)
	root := &object{path: name, origin: path.Dir(real), needs: needs}
	if l.NoProc {
		l.withoutProc(root)
	}
	l.libraries(root)
}

// withoutProc: the loader reads in /proc where the program is. Only glibc's has another way to hear of it.
func (l *loading) withoutProc(root *object) {
	const variable = "LD_ORIGIN_PATH"
	dir := root.origin
	root.origin = l.a.Env[variable]
	musl := strings.HasPrefix(path.Base(root.needs.Interp), "ld-musl-")
	if musl {
		root.origin = ""
	}
	named := slices.ContainsFunc(append(root.needs.Rpath, root.needs.Runpath...), func(s string) bool { return strings.Contains(s, "ORIGIN") })
	if root.origin != "" || !named {
		return
	}
	l.p.say("%s names directories of libraries by $ORIGIN, which its loader does not know without /proc (processes.proc = false)", pathname.Printable(root.path))
	if !musl {
		l.p.Hint = "env.set = { " + variable + " = " + tomlString(dir) + " }"
	}
}
