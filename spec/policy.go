// Package spec turns a policy (Policy) and the facts of a machine (Host) into a Plan: everything that a sandbox has and needs. It is
// pure: it makes no system call, starts no process and reads no clock. So every decision can be tested with made-up machines, and
// package container only carries decisions out. It also loads and explains policies.
package spec

import (
	"fmt"
	"strings"
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
	// Digest is the SHA-256 of Canonical, in hex. It does not depend on the names and layout of the policy's files, or on the
	// places in From fields.
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
}

// Place is the place of an item of a list or table, such as "env.allow". It is empty if no file has the item. Grants, binds and ports
// have a From instead.
func (p *Policy) Place(key, item string) string { return p.Places[key+" "+item] }

func (p *Policy) note(key, item string, at place) {
	if p.Places == nil {
		p.Places = map[string]string{}
	}
	if strings.HasPrefix(at.file, flagMark) {
		p.Places[key+" "+item] = at.file
		return
	}
	p.Places[key+" "+item] = fmt.Sprintf("%s:%d:%d", at.file, at.at.line, at.at.column)
}

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
	Execute []rootfs.Grant // if not empty, the only files that may be executed
	Guard   string         // "" or "python"
	Steps   int64          // step budget of the guard; 0 means none
}

// View has the additional files of the execs that ask for this view.
type View struct {
	Read  []rootfs.Grant
	Binds []rootfs.Bind
}
