// Package policy loads policies: TOML or JSON with defaults, presets, files that extend others, and flags of the command line. One table
// of keys (table.go) is read by the loader, the canonical form, the JSON Schema and the reference, so none of them can miss a key. Errors
// name file, line, column and key.
//
// It imports of ours document, fault, units, and rootfs and netpolicy, which own sections of Policy.
package policy

import (
	"slices"
	"time"

	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs"
)

// Values of enforce, for a protection that this machine cannot give.
const (
	EnforceRequired   = "required"    // refuse to run
	EnforceBestEffort = "best_effort" // run with less, and report the difference
)

// Policy is the content of a policy file, with every default filled in.
type Policy struct {
	File string // the file it came from, or "preset NAME"; for messages
	// Digest is the SHA-256, in hex, of Canonical without spaces between tokens. It does not depend on the names and layout of the
	// policy's files, or on the places in From fields.
	Digest       string
	Sources      []string // names of all files and presets: File first, then those that it extends
	Paths        []string // absolute paths of the files among Sources
	Expanded     []string // names of the variables that were expanded in it
	Name         string
	Enforce      string
	User         User
	Files        rootfs.Policy
	Interpreters Interpreters
	Env          EnvPolicy
	Network      netpolicy.Policy
	Limits       Limits
	Processes    Processes
	Views        map[string]View // by name
	// Places has the place of each string of a list or table, such as "task.toml:12:9" for "env.allow LC_*". See Place.
	Places map[string]string

	Given map[string]bool // the keys that a file or an option has: see Sets
}

// Sets reports whether a file of the policy has a key, such as "limits.wall". Else its value is the default.
func (p *Policy) Sets(key string) bool { return p.Given[key] }

// StaysInPlace reports whether a program starts in its caller's directory, if the view has that: the policy names no other.
func (p *Policy) StaysInPlace() bool { return p.Files.Workdir.Path == "" && p.Files.Workspace == nil }

// Place is the place of an item of a list or table, such as "env.allow". It is empty if no file has the item. Grants, binds and ports
// have a From instead.
func (p *Policy) Place(key, item string) string { return p.Places[key+" "+item] }

// User is the user that the program sees itself as.
type User struct {
	Kind string // "caller", "root" or "number"
	ID   int    // for "number"
	From string
}

// Interpreters has the keys of [files] about language interpreters.
type Interpreters struct {
	Show        []string // files.interpreters
	Packages    []string // distributions that the program sees even if they are editable or on PYTHONPATH
	HideModules []string // Python modules that are hidden under every path
}

// EnvPolicy is the [env] section.
type EnvPolicy struct {
	Deny   []string // names or patterns that Allow does not take
	Allow  []string // names or patterns ("LC_*") taken from the caller
	Set    map[string]string
	Redact bool
}

// Limits is the [limits] section. Zero means that the policy does not have the key.
type Limits struct {
	Wall   time.Duration `json:"wall,omitempty"`
	Idle   time.Duration `json:"idle,omitempty"`
	CPU    time.Duration `json:"cpu,omitempty"`
	CPUs   float64       `json:"cpus,omitempty"`
	Memory int64         `json:"memory,omitempty"` // bytes
	Pids   int64         `json:"pids,omitempty"`
	File   int64         `json:"file,omitempty"` // bytes of the largest file
	Disk   int64         `json:"disk,omitempty"` // bytes written to writable grants
	Nofile int64         `json:"nofile,omitempty"`
	Output int64         `json:"output,omitempty"` // bytes of stdout, and of stderr, that a result keeps
}

// Processes is the [processes] section.
type Processes struct {
	Spawn   bool           // the program may start processes
	Native  bool           // the program may load code from files that it can write
	Userns  bool           // the program may make user namespaces
	Proc    bool           // the program sees a /proc, of its exec
	Execute []rootfs.Grant // if not empty, the only files that may be executed
	Guard   string         // "" or "python"
	Steps   int64          // step budget of the guard; 0 means none
}

// View is what one exec sees besides what every exec of its sandbox sees, read-only, or does not see. Other execs have nothing of it.
type View struct {
	Read  []rootfs.Grant
	Binds []rootfs.Bind
	Deny  []rootfs.Grant
}

// With is the files of a policy as an exec with a view sees them.
func (v View) With(p rootfs.Policy) rootfs.Policy {
	p.Read, p.Deny = slices.Concat(p.Read, v.Read), slices.Concat(p.Deny, v.Deny)
	p.Binds = slices.Concat(slices.DeleteFunc(slices.Clone(p.Binds), func(b rootfs.Bind) bool {
		return slices.ContainsFunc(v.Binds, func(n rootfs.Bind) bool { return n.Target == b.Target })
	}), v.Binds)
	return p
}
