package cli

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/caller"
)

const manPage = "../docs/sandboxrun.1.md"

// manSections reads the man page: its parts by heading, those of commands by the command's name.
func manSections(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(manPage)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	name := ""
	for line := range strings.Lines(string(data)) {
		if heading, ok := strings.CutPrefix(line, "# "); ok {
			name = strings.TrimSpace(heading)
		} else if heading, ok := strings.CutPrefix(line, "## "); ok {
			name = strings.Fields(heading)[0]
		}
		sections[name] += line
	}
	return sections
}

// visible gives every spelling of the flags that users are shown.
func visible(flags []cli.Flag) []string {
	var names []string
	for _, f := range flags {
		if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
			continue
		}
		for _, name := range f.Names() {
			if len(name) == 1 {
				names = append(names, "-"+name)
			} else {
				names = append(names, "--"+name)
			}
		}
	}
	return names
}

func TestManPageMentionsEverything(t *testing.T) {
	sections := manSections(t)
	app := app(&caller.Caller{})
	mentions := func(part, what string) {
		t.Helper()
		if !regexp.MustCompile(`\*\*` + regexp.QuoteMeta(what) + `\*\*`).MatchString(sections[part]) {
			t.Errorf("%s: the part %q does not mention **%s**", manPage, part, what)
		}
	}
	for _, flag := range visible(app.Flags) {
		mentions("GLOBAL OPTIONS", flag)
	}
	for _, c := range app.Commands {
		if _, ok := sections[c.Name]; !ok {
			t.Errorf("%s has no part on the command %q", manPage, c.Name)
			continue
		}
		mentions("SYNOPSIS", c.Name)
		for _, flag := range visible(c.Flags) {
			mentions(c.Name, flag)
		}
		for _, sub := range c.Subcommands {
			mentions(c.Name, c.Name+" "+sub.Name)
		}
	}
}

// TestManPageMentionsNothingElse fails for an option of the man page that no command has.
func TestManPageMentionsNothingElse(t *testing.T) {
	app := app(&caller.Caller{})
	known := append(visible(app.Flags), "--help", "-h", "--")
	for _, c := range app.Commands {
		known = append(known, visible(c.Flags)...)
	}
	for part, text := range manSections(t) {
		for _, found := range regexp.MustCompile(`\*\*(--?[A-Za-z][a-z-]*)`).FindAllStringSubmatch(text, -1) {
			if !slices.Contains(known, found[1]) {
				t.Errorf("%s: the part %q mentions %s, which no command has", manPage, part, found[1])
			}
		}
	}
}
