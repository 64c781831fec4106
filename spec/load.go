package spec

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs"
)

// Bounds of a policy's files.
const (
	maxExtends = 8       // files and presets in one chain of extends
	maxFile    = 1 << 20 // bytes of one file
)

// Input is a policy file and everything that its meaning depends on. Load reads nothing else.
type Input struct {
	Name string // of the file, for messages; a name that ends in .json is read as JSON
	Data []byte
	Path string // of the file, absolute; empty if the policy is not a file
	Dir  string // absolute directory that relative paths are relative to; empty means Cwd
	Cwd  string // the caller's working directory, for a policy that has no directory of its own, such as standard input
	Home string // the value of "~"; may be empty
	// Env has the values of "$VAR".
	Env map[string]string
	// ReadFile reads the file that extends names, by its absolute path. If it is nil, a policy cannot extend a file.
	ReadFile func(path string) ([]byte, error)
	// Flags are the additions of the command line.
	Flags []Flag
}

// Load reads a policy and fills in its defaults. TOML is read unless the name ends in .json or the text begins with a
// brace. When the policy is wrong, the error is a *PolicyError.
func Load(in Input) (*Policy, error) { return load(in, notYet()) }

func load(in Input, refused []unsupported) (*Policy, error) {
	if in.Dir == "" {
		in.Dir = in.Cwd
	}
	if !path.IsAbs(in.Dir) {
		return nil, fmt.Errorf("load policy %q: directory %q is not absolute", in.Name, in.Dir)
	}
	l := &loader{in: in, keys: policyKeys(), policy: defaults(), places: map[string]place{}}
	l.policy.File = in.Name
	if in.Path != "" {
		l.policy.Paths = []string{in.Path}
	}
	l.file(document{in.Name, in.Data, in.Dir, path.Join(in.Dir, path.Base(in.Name))})
	for _, f := range in.Flags {
		l.flag(f)
	}
	l.finish()
	written := encode(l.keys, l.policy)
	l.refuse(refused, written)
	if len(l.problems) > 0 {
		return nil, policyError(l.problems, l.policy.Sources)
	}
	l.policy.Digest = digest(written)
	return l.policy, nil
}

// defaults is the policy without any key.
func defaults() *Policy {
	return &Policy{
		Enforce: EnforceRequired,
		User:    User{Kind: "caller", From: fromDefault},
		Files: rootfs.Policy{
			Base: rootfs.Base{Kind: rootfs.BaseSystem, From: fromDefault}, Missing: "error",
		},
		Env:       EnvPolicy{Redact: true},
		Network:   netpolicy.Policy{Mode: netpolicy.Isolated, EnvURLs: true, Transparent: true, From: fromDefault},
		Processes: Processes{Spawn: true},
	}
}

// fromDefault is the From of a value that no policy sets.
const fromDefault = "default"

// loader reads a chain of files into one policy: the extended file first, then the file that extends it.
type loader struct {
	in       Input
	keys     []key[Policy]
	policy   *Policy
	problems []Problem
	places   map[string]place // the last place of each key
	chain    []document       // documents that are being read: each extends the next
}

// document is one file or preset of the chain.
type document struct {
	name string // for messages
	data []byte
	dir  string
	id   string // identifies the file or preset
}

// place is a position in one of the files.
type place struct {
	file string
	at   position
}

// scope is a loader at one file.
type scope struct {
	*loader
	document
}

// fail adds a problem.
func (l *loader) fail(p place, key, format string, args ...any) {
	l.failHint(p, key, "", format, args...)
}

func (l *loader) failHint(p place, key, hint, format string, args ...any) {
	l.problems = append(l.problems, Problem{
		File: p.file, Line: p.at.line, Column: p.at.column, Key: key, Message: fmt.Sprintf(format, args...), Hint: hint,
	})
}

func (s *scope) place(at position) place { return place{s.name, at} }

func (s *scope) wrong(at position, key, format string, args ...any) {
	s.fail(s.place(at), key, format, args...)
}

// from is the place of a key, for the From fields of the policy.
func (s *scope) from(at position, key string) string {
	if strings.HasPrefix(s.name, flagMark) {
		return s.name
	}
	return fmt.Sprintf("%s:%d:%d: %s", s.name, at.line, at.column, key)
}

// file reads one document, after the document that it extends.
func (l *loader) file(d document) {
	if !slices.Contains(l.policy.Sources, d.name) {
		l.policy.Sources = append(l.policy.Sources, d.name)
	}
	s := &scope{l, d}
	root, f := parse(d)
	if f != nil {
		s.wrong(f.at, f.key, "%s", f.message)
		return
	}
	if !s.checkVersion(root) {
		return
	}
	l.chain = append(l.chain, d)
	if e := root.get("extends"); e != nil {
		s.extend(e.value)
	}
	l.chain = l.chain[:len(l.chain)-1]
	readTable(s, "", l.keys, l.policy, root)
}

func parse(d document) (*node, *fault) {
	data := bytes.TrimPrefix(d.data, []byte("\ufeff"))
	if len(data) > maxFile {
		return nil, &fault{at: position{1, 1}, message: fmt.Sprintf("the file is larger than %d bytes", maxFile)}
	}
	if i := invalidUTF8(data); i >= 0 {
		return nil, &fault{at: newCursor(data).position(i), message: "the file is not UTF-8"}
	}
	if strings.HasSuffix(d.name, ".json") || looksLikeJSON(data) {
		return readJSON(data)
	}
	return readTOML(data)
}

// checkVersion comes first: in a file of another version the other keys may mean something else.
func (s *scope) checkVersion(root *node) bool {
	v := root.get("version")
	switch {
	case v == nil:
		s.wrong(position{1, 1}, "version", "missing: a policy says version = 1")
	case v.value.kind != integerNode:
		s.wrongKind(v.value, "version", "the number 1")
	case v.value.integer != 1:
		s.wrong(v.value.at, "version", "version %d is not known: this sandboxrun reads version 1", v.value.integer)
	default:
		return true
	}
	return false
}

// extend reads the preset or file that the current document extends.
func (s *scope) extend(v *node) {
	name, ok := s.text(v, "extends")
	if !ok {
		return
	}
	d, err := s.extended(name)
	if err == nil {
		err = s.checkChain(d)
	}
	if err != nil {
		s.wrong(v.at, "extends", "%v", err)
		return
	}
	s.file(d)
}

// extended returns the preset or file that extends names.
func (s *scope) extended(name string) (document, error) {
	isFile := strings.Contains(name, "/") || strings.HasSuffix(name, ".toml") || strings.HasSuffix(name, ".json")
	if !isFile {
		data, ok := Preset(name)
		if !ok {
			return document{}, fmt.Errorf("preset %q is not known: want one of %q, or a file: \"./NAME.toml\"", name, Presets())
		}
		id := "preset " + name
		return document{id, data, s.dir, id}, nil
	}
	p, err := s.hostPath(name)
	if err != nil {
		return document{}, err
	}
	if s.in.ReadFile == nil {
		return document{}, errors.New("this policy cannot extend a file")
	}
	data, err := s.in.ReadFile(p)
	if named, ok := errors.AsType[*fs.PathError](err); ok {
		err = named.Err // PathError has the path, which the message has already
	}
	if err != nil {
		return document{}, fmt.Errorf("read %q: %w", p, err)
	}
	s.policy.Paths = append(s.policy.Paths, p)
	return document{p, data, path.Dir(p), p}, nil
}

// checkChain refuses a document that extends itself, directly or through others, and a chain that is too long.
func (l *loader) checkChain(d document) error {
	names := make([]string, 0, len(l.chain)+1)
	for _, c := range l.chain {
		names = append(names, c.name)
	}
	names = append(names, d.name)
	chain := strings.Join(names, " -> ")
	if slices.ContainsFunc(l.chain, func(c document) bool { return c.id == d.id }) {
		return fmt.Errorf("it extends itself: %s", chain)
	}
	if len(l.chain) >= maxExtends {
		return fmt.Errorf("the chain is longer than %d: %s", maxExtends, chain)
	}
	return nil
}

// finish sets and checks values that depend on more than one key or file.
func (l *loader) finish() {
	if w := l.policy.Files.Workspace; w != nil {
		l.finishWorkspace(w)
	}
	for i := range l.policy.Files.Tmpfs {
		finishTmpfs(&l.policy.Files.Tmpfs[i])
	}
	if h := l.policy.Files.Home; h != nil {
		finishTmpfs(h)
	}
	if w := l.policy.Files.Workspace; w != nil && w.Parent != "" && w.Source != SourceDisk && !slices.ContainsFunc(l.policy.Files.Binds, func(b rootfs.Bind) bool { return b.Copy }) {
		l.fail(l.places["workspace.parent"], "workspace.parent", `only what is made on disk has a parent: source = "disk", or a bind with copy = true`)
	}
	p := l.policy.Processes
	if p.Steps > 0 && p.Guard == "" {
		l.fail(l.places["processes.steps"], "processes.steps", `a step budget needs guard = "python"`)
	}
}

func finishTmpfs(t *rootfs.Tmpfs) { t.Lifetime = cmp.Or(t.Lifetime, "sandbox") }

func (l *loader) finishWorkspace(w *rootfs.Workspace) {
	if w.Source == "" {
		if _, ok := l.places["workspace.source"]; !ok { // otherwise its value was wrong, and has a problem already
			l.fail(l.places["workspace"], "workspace.source", `missing: a workspace has a directory or "tmpfs" as its source`)
		}
		return
	}
	if w.Lifetime == "" {
		w.Lifetime = "sandbox"
	}
	if w.Path == "" {
		w.Path = w.Source
		if w.Source == sourceTmpfs || w.Source == SourceDisk {
			w.Path = "/w"
		}
	}
	if w.Lifetime == "exec" && w.Source == SourceDisk {
		l.fail(l.places["workspace.lifetime"], "workspace.lifetime", `a workspace of each exec's own is in memory: source = "tmpfs"`)
	}
	if w.Size > 0 && w.Source != sourceTmpfs {
		l.fail(l.places["workspace.size"], "workspace.size", `only a workspace with source = "tmpfs" has a size`)
	}
}
