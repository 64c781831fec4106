package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/container"
)

// Version is the version of this binary. The build sets it.
var Version = "0.1.0-dev" //nolint:gochecknoglobals // set by the linker

func (p *program) specCommand() *cli.Command {
	return &cli.Command{
		Name: "spec", Usage: "print the OCI configuration that a policy becomes", ArgsUsage: "[-- CMD [ARG...]]",
		Description: "With --bundle it writes a complete bundle, which runc and crun run. In a bundle the program is root of a user namespace\n" +
			"in which only the caller's id is mapped. Under sandboxrun it is in one more user namespace, without capabilities.",
		Flags: []cli.Flag{
			policyFlag(),
			&cli.StringFlag{Name: "bundle", Aliases: []string{"b"}, Usage: "write a bundle to `DIR`, which must be empty or not exist (default: print config.json)"},
		},
		Action: p.spec,
	}
}

func (p *program) spec(c *cli.Context) error {
	plan, err := p.plan(c.String("policy"), false, nil, p.trust(c))
	if err != nil {
		return err
	}
	if plan.Relay != nil {
		p.warn("network: another runtime has no relay: the program reaches its own loopback only")
	}
	if len(plan.Exec.Execute) > 0 {
		p.warn("processes.execute: another runtime lets the program execute every file that it cannot write")
	}
	if plan.Exec.NoSpawn {
		p.warn("processes.spawn: another runtime lets the program execute other programs; it starts no process there either")
	}
	if plan.Exec.Guard != nil {
		p.warn("processes.guard: another runtime starts the interpreter without the guard, and counts no steps")
	}
	if c.NArg() > 0 {
		plan.Spec.Process.Args = c.Args().Slice()
	}
	plan.Spec.Process.Env = plan.Exec.Environ(p.env, nil)
	oci, lacks := plan.Portable()
	if lacks > 0 {
		p.warn(fmt.Sprintf("files.deny: another runtime cannot mount on symbolic links, and leaves out %d mounts that pin such links", lacks))
	}
	dir := c.String("bundle")
	if dir == "" {
		enc := json.NewEncoder(p.out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(oci)
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make bundle: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("make bundle: %w", err)
	}
	if len(entries) > 0 {
		return &usage{fmt.Sprintf("directory %q is not empty", dir), "name a directory that does not exist"}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("make bundle: %w", err)
	}
	defer root.Close()
	return container.WriteBundle(root, plan)
}

func (p *program) versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version of this binary and of its libraries", Flags: []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			facts := versions()
			if c.Bool("json") {
				p.printJSON(facts)
				return nil
			}
			fmt.Fprintf(p.out, "sandboxrun %s\nlibcontainer %s\nruntime-spec %s\n%s %s\n",
				facts["version"], facts["libcontainer"], facts["oci"], facts["go"], facts["platform"])
			return nil
		},
	}
}

// versions are the versions of this binary and its libraries.
func versions() map[string]string {
	facts := map[string]string{
		"version": Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "oci": specs.Version,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "github.com/opencontainers/runc" {
				facts["libcontainer"] = d.Version
			}
		}
	}
	return facts
}

func (p *program) completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a shell script that completes command lines", ArgsUsage: "bash|zsh|fish",
		Action: func(c *cli.Context) error {
			if c.NArg() > 1 {
				return &usage{fmt.Sprintf("unexpected argument %q", c.Args().Get(1)), helpHint(c)}
			}
			switch shell := c.Args().First(); shell {
			case "bash", "zsh":
				fmt.Fprint(p.out, completionScripts()[shell])
				return nil
			case "fish":
				text, err := c.App.ToFishCompletion()
				fmt.Fprint(p.out, text)
				return err
			}
			return &usage{"name a shell: bash, zsh or fish", "bash: source <(sandboxrun completion bash)"}
		},
	}
}

// completionScripts call the binary with --generate-bash-completion.
func completionScripts() map[string]string {
	return map[string]string{
		"bash": `_sandboxrun() {
  local cur words
  cur="${COMP_WORDS[COMP_CWORD]}"
  words=("${COMP_WORDS[@]:0:$COMP_CWORD}")
  [[ "$cur" == -* ]] && words+=("$cur")
  COMPREPLY=($(compgen -W "$("${words[@]}" --generate-bash-completion 2>/dev/null | cut -d: -f1)" -- "$cur"))
}
complete -o bashdefault -o default -F _sandboxrun sandboxrun
`,
		"zsh": `#compdef sandboxrun
_sandboxrun() {
  local -a options
  options=("${(@f)$(_CLI_ZSH_AUTOCOMPLETE_HACK=1 "${words[@]:0:#words[@]-1}" --generate-bash-completion 2>/dev/null)}")
  if [[ "${options[1]}" != "" ]]; then _describe 'values' options; else _files; fi
}
compdef _sandboxrun sandboxrun
`,
	}
}
