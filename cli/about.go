package cli

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/cli/version"
	"github.com/sandboxrun/sandboxrun/fault"
)

func versionCommand(p *caller.Caller) *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version of this binary and of its libraries", Flags: []cli.Flag{flags.JSON()},
		Action: func(c *cli.Context) error {
			if err := flags.None(c); err != nil {
				return err
			}
			facts := version.Facts()
			if c.Bool("json") {
				p.PrintJSON(facts)
				return nil
			}
			fmt.Fprintf(p.Out, "sandboxrun %s\nlibcontainer %s\nruntime-spec %s\n%s %s\n",
				facts["version"], facts["libcontainer"], facts["oci"], facts["go"], facts["platform"])
			return nil
		},
	}
}

func completionCommand(p *caller.Caller) *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a shell script that completes command lines", ArgsUsage: "bash|zsh|fish",
		Action: func(c *cli.Context) error {
			if c.NArg() > 1 {
				return fault.Usage(fmt.Sprintf("unexpected argument %q", c.Args().Get(1)), flags.Help(c))
			}
			switch shell := c.Args().First(); shell {
			case "bash", "zsh":
				fmt.Fprint(p.Out, completionScripts()[shell])
				return nil
			case "fish":
				text, err := c.App.ToFishCompletion()
				fmt.Fprint(p.Out, text)
				return err
			}
			return fault.Usage("name a shell: bash, zsh or fish", "bash: source <(sandboxrun completion bash)")
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
