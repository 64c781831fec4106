// Command sandboxrun runs a program so that it sees only what a policy grants.
package main

import (
	"os"
	"runtime"

	"github.com/sandboxrun/sandboxrun/cli"
)

// The first thread is main's until cli.Main gives it back.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // when main runs it may be on another thread already

func main() { os.Exit(cli.Main(os.Args, os.Environ(), os.Stdin, os.Stdout, os.Stderr)) }
