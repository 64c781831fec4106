package policy

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
	"github.com/sandboxrun/sandboxrun/spec/document"
)

// Bounds of a policy's files.
const (
	maxExtends = 8       // files and presets in one chain of extends
	maxFile    = 1 << 20 // bytes of one file
)

// Load reads a policy and fills in its defaults. TOML is read unless the name ends in .json or the text begins with a
// brace. When the policy is wrong, the error is a *PolicyError.
func Load(in Input) (*Policy, error) {
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
	l.file(source{in.Name, in.Data, in.Dir, path.Join(in.Dir, path.Base(in.Name))})
	for _, f := range in.Flags {
		l.flag(f)
	}
	l.finish()
	written := encode(l.keys, l.policy)
	if len(l.problems) > 0 {
		return nil, newError(l.problems, l.policy.Sources)
	}
	l.policy.Digest = digest(written)
	l.policy.Given = map[string]bool{}
	for key := range l.places {
		l.policy.Given[key] = true
	}
	return l.policy, nil
}

// defaults is the policy without any key.
func defaults() *Policy {
	return &Policy{
		Enforce: EnforceRequired,
		User:    User{Kind: "caller", From: rootfs.FromDefault},
		Files: rootfs.Policy{
			Base: rootfs.Base{Kind: rootfs.BaseSystem, From: rootfs.FromDefault}, Missing: "error",
		},
		Env:       EnvPolicy{Redact: true},
		Network:   netpolicy.Policy{Mode: netpolicy.Isolated, EnvURLs: true, Transparent: true, From: rootfs.FromDefault},
		Processes: Processes{Spawn: true, Native: true, Proc: true},
	}
}

// file reads one document, after the document that it extends.
func (l *loader) file(d source) {
	if !slices.Contains(l.policy.Sources, d.name) {
		l.policy.Sources = append(l.policy.Sources, d.name)
	}
	s := &scope{l, d}
	root, f := parse(d)
	if f != nil {
		s.wrong(f.At, f.Key, "%s", f.Message)
		return
	}
	if !s.checkVersion(root) {
		return
	}
	l.chain = append(l.chain, d)
	if e := root.Get("extends"); e != nil {
		s.extend(e.Value)
	}
	l.chain = l.chain[:len(l.chain)-1]
	readTable(s, "", l.keys, l.policy, root)
}

func parse(d source) (*document.Node, *document.Fault) {
	data := bytes.TrimPrefix(d.data, []byte("\ufeff"))
	if len(data) > maxFile {
		return nil, &document.Fault{At: document.Position{Line: 1, Column: 1}, Message: fmt.Sprintf("the file is larger than %d bytes", maxFile)}
	}
	if i := document.InvalidUTF8(data); i >= 0 {
		return nil, &document.Fault{At: document.NewCursor(data).Position(i), Message: "the file is not UTF-8"}
	}
	if strings.HasSuffix(d.name, ".json") || document.LooksLikeJSON(data) {
		return document.ReadJSON(data)
	}
	return document.ReadTOML(data)
}

// checkVersion comes first: in a file of another version the other keys may mean something else.
func (s *scope) checkVersion(root *document.Node) bool {
	v := root.Get("version")
	switch {
	case v == nil:
		s.wrong(document.Position{Line: 1, Column: 1}, "version", "missing: a policy says version = 1")
	case v.Value.Kind != document.IntegerNode:
		s.wrongKind(v.Value, "version", "the number 1")
	case v.Value.Integer != 1:
		s.wrong(v.Value.At, "version", "version %d is not known: this sandboxrun reads version 1", v.Value.Integer)
	default:
		return true
	}
	return false
}

// extend reads the preset or file that the current document extends.
func (s *scope) extend(v *document.Node) {
	name, ok := s.text(v, "extends")
	if !ok {
		return
	}
	d, err := s.extended(name)
	if err == nil {
		err = s.checkChain(d)
	}
	if err != nil {
		s.wrong(v.At, "extends", "%v", err)
		return
	}
	s.file(d)
}

// extended returns the preset or file that extends names.
func (s *scope) extended(name string) (source, error) {
	isFile := strings.Contains(name, "/") || strings.HasSuffix(name, ".toml") || strings.HasSuffix(name, ".json")
	if !isFile {
		data, ok := Preset(name)
		if !ok {
			return source{}, fmt.Errorf("preset %q is not known: want one of %q, or a file: \"./NAME.toml\"", name, Presets())
		}
		id := "preset " + name
		return source{id, data, s.dir, id}, nil
	}
	p, err := s.hostPath(name)
	if err != nil {
		return source{}, err
	}
	if s.in.ReadFile == nil {
		return source{}, errors.New("this policy cannot extend a file")
	}
	data, err := s.in.ReadFile(p)
	if named, ok := errors.AsType[*fs.PathError](err); ok {
		err = named.Err // PathError has the path, which the message has already
	}
	if err != nil {
		return source{}, fmt.Errorf("read %q: %w", p, err)
	}
	s.policy.Paths = append(s.policy.Paths, p)
	return source{p, data, path.Dir(p), p}, nil
}

// checkChain refuses a document that extends itself, directly or through others, and a chain that is too long.
func (l *loader) checkChain(d source) error {
	names := make([]string, 0, len(l.chain)+1)
	for _, c := range l.chain {
		names = append(names, c.name)
	}
	names = append(names, d.name)
	chain := strings.Join(names, " -> ")
	if slices.ContainsFunc(l.chain, func(c source) bool { return c.id == d.id }) {
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
	if w := l.policy.Files.Workspace; w != nil && w.Parent != "" && w.Source != rootfs.SourceDisk && !slices.ContainsFunc(l.policy.Files.Binds, func(b rootfs.Bind) bool { return b.Copy }) {
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
		if w.Source == rootfs.SourceTmpfs || w.Source == rootfs.SourceDisk {
			w.Path = "/w"
		}
	}
	if w.Lifetime == "exec" && w.Source == rootfs.SourceDisk {
		l.fail(l.places["workspace.lifetime"], "workspace.lifetime", `a workspace of each exec's own is in memory: source = "tmpfs"`)
	}
	if w.Size > 0 && w.Source != rootfs.SourceTmpfs {
		l.fail(l.places["workspace.size"], "workspace.size", `only a workspace with source = "tmpfs" has a size`)
	}
}
