package flags

import (
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func TestArgumentsAndFlagsMix(t *testing.T) {
	tests := []struct {
		line, args string
		follow     bool
		exec       string
		fails      bool
	}{
		{line: "", args: ""},
		{line: "a b", args: "a b"},
		{line: "-f a b", args: "a b", follow: true},
		{line: "a -f b", args: "a b", follow: true},
		{line: "a b --follow --exec x", args: "a b", follow: true, exec: "x"},
		{line: "--exec x a --exec=y", args: "a", exec: "y"},
		{line: "a -x z b", args: "a b", exec: "z"},
		{line: "a -- -f", args: "a -f"},
		{line: "-- a -f", args: "a", follow: true}, // the first -- only ends the flags before it
		{line: "a --nope", fails: true},
		{line: "a --exec", fails: true},
		{line: "a -9", fails: true},
	}
	for _, tt := range tests {
		t.Run(tt.line, func(t *testing.T) {
			var args []string
			var follow bool
			var exec string
			var err error
			app := &cli.App{Commands: []*cli.Command{{
				Name: "do",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}}, &cli.StringFlag{Name: "exec", Aliases: []string{"x"}},
				},
				Action: func(c *cli.Context) error {
					args, err = Arguments(c)
					follow, exec = c.Bool("follow"), c.String("exec")
					return nil
				},
			}}}
			if err := app.Run(slices.Concat([]string{"app", "do"}, strings.Fields(tt.line))); err != nil {
				t.Fatal(err)
			}
			if (err != nil) != tt.fails {
				t.Fatalf("error %v", err)
			}
			if !tt.fails && (strings.Join(args, " ") != tt.args || follow != tt.follow || exec != tt.exec) {
				t.Errorf("got %q, %v, %q", args, follow, exec)
			}
		})
	}
}
