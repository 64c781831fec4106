// Package spec decides: it turns what is asked (Policy) and what the machine can do (Host) into a Plan. It is pure: it
// makes no system call, starts nothing and reads no clock.
package spec

import (
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs"
)

// What enforce says about a protection that cannot be had.
const (
	EnforceRequired   = "required"    // refuse to run with less than asked
	EnforceBestEffort = "best_effort" // run with the next best, and say what is missing
)

// Policy is what a policy file asks for, with every default filled in.
type Policy struct {
	File    string // the file it came from, or "preset NAME"; for messages
	Name    string
	Enforce string
	User    User
	Files   rootfs.Policy
	Env     EnvPolicy
	Network netpolicy.Policy
	Limits  Limits
}

// User says as whom the program runs, as it sees itself.
type User struct {
	Kind string // "caller", "root" or "number"
	ID   int    // for "number"
	From string
}

// EnvPolicy is the [env] section.
type EnvPolicy struct {
	Allow  []string // names or patterns ("LC_*") taken from the caller
	Set    map[string]string
	Redact bool
}

// Limits is the [limits] section. Zero means that the policy says nothing.
type Limits struct {
	Wall   time.Duration
	Output int64 // bytes kept of each of stdout and stderr
}
