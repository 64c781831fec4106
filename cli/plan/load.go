// Package plan reads the policy that a command line or a request names, resolves it on this machine, and has a sandbox made of it.
// The commands that need no sandbox for that are here too: policy and spec.
//
// spec decides what a policy becomes, container makes the sandbox; here is only what depends on the caller: where policies are read,
// and which directory can be the workspace when there is none.
package plan

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"unicode/utf8"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Load reads the policy of a source.
func Load(p *caller.Caller, from Source) (*policy.Policy, error) {
	name := from.Name
	in := policy.Input{Env: p.Env, Home: p.Env["HOME"], ReadFile: flags.ReadFile, Cwd: p.Cwd, Flags: from.Grants}
	if p.CwdErr != nil && len(in.Flags) > 0 {
		return nil, fault.Usage(
			p.NoCwd()+", so --"+in.Flags[0].Name+" has nothing to be relative to",
			"change to another directory, or give a policy with --policy",
		)
	}
	switch {
	case name == "" && from.Workspace && from.Inline == nil:
		if p.CwdErr != nil {
			return nil, fault.Usage(
				p.NoCwd(),
				"change to another directory, or give a policy with --policy",
			)
		}
		if err := checkWorkspace(p); err != nil {
			return nil, err
		}
		if !utf8.ValidString(p.Cwd) {
			return nil, fault.Usage(fmt.Sprintf("the current directory %q has a name that is not UTF-8, so it cannot be the workspace", p.Cwd),
				"rename it, or give a policy with --policy; [[bind]] can show it by a symlink to it")
		}
		def := policy.Default(p.Cwd)
		def.Env, def.Home, def.Cwd, def.Flags = in.Env, in.Home, in.Cwd, in.Flags
		policy, err := policy.Load(def)
		if err == nil {
			policy.Files.Workspace.From = "the current directory: workspace" // no file has this key
		}
		return policy, err
	case name == "":
		name = "default"
	}
	if err := distrust(&in, from, name); err != nil {
		return nil, err
	}
	if from.Inline != nil {
		in.Name, in.Data = "the request", from.Inline
		return policy.Load(in)
	}
	if err := readPolicy(&in, name, p.In); err != nil {
		return nil, err
	}
	return policy.Load(in)
}

// distrust lets a policy that is held below a ceiling read nothing of the host.
func distrust(in *policy.Input, from Source, name string) error {
	if from.Ceiling == nil {
		return nil
	}
	in.Env, in.Home, in.ReadFile = nil, "", nil
	if _, preset := policy.Preset(name); from.Inline == nil && !preset {
		return fault.New(fault.BeyondCeiling, "sandboxrun policy presets; or send the policy itself", "policy %q is no preset", name)
	}
	return nil
}

func readPolicy(in *policy.Input, name string, stdin io.Reader) error {
	if name == "-" {
		data, err := io.ReadAll(stdin)
		in.Name, in.Data = "standard input", data
		if err != nil {
			return fmt.Errorf("read policy from standard input: %w", err)
		}
		return nil
	}
	// As for extends, the name of a preset is the preset and not a file, because a program that may write in the current
	// directory could make a file of that name.
	if preset, ok := policy.Preset(name); ok {
		in.Name, in.Data, in.Dir = "preset "+name, preset, "/"
		return nil
	}
	data, err := flags.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Usage(fmt.Sprintf("there is no policy file or preset %q", name), "sandboxrun policy presets")
	}
	if err != nil {
		return fmt.Errorf("read policy: %w", err)
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return fmt.Errorf("read policy: %w", err)
	}
	in.Name, in.Data, in.Dir, in.Path = name, data, filepath.Dir(abs), abs
	if flags.OwnDescriptor(name) {
		in.Path, _ = filepath.EvalSymlinks(name) // a pipe has no path
	}
	return nil
}
