// Command sandboxrun runs a program so that it sees only what a policy grants.
package main

import (
	"os"

	"github.com/sandboxrun/sandboxrun/cli"
)

func main() { os.Exit(cli.Main(os.Args, os.Environ(), os.Stdin, os.Stdout, os.Stderr)) }
