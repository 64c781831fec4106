// Package spec decides: it turns what is asked (Policy) and what the machine can do (Host) into a Plan. It is pure: it
// makes no system call, starts nothing and reads no clock.
package spec

import (
	"fmt"
	"strings"
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
	File string // the file it came from, or "preset NAME"; for messages
	// Digest is the SHA-256 of the policy's meaning, in hex: of Canonical. The names and layout of its files, and the
	// places that From fields tell, are no part of it.
	Digest       string
	Sources      []string // what was read for it: File first, then everything it extends
	Paths        []string // of those of them that are files, absolute
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
	// Places says where each string of a list or table was said, "task.toml:12:9" by "env.allow LC_*". See Place.
	Places map[string]string
}

// Place says where a list or table, such as "env.allow", has an item. It is empty where no file says so. Grants, binds and
// ports have a From of their own.
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

// User says as whom the program runs, as it sees itself.
type User struct {
	Kind string // "caller", "root" or "number"
	ID   int    // for "number"
	From string
}

// Interpreters is the part of the [files] section that is about language interpreters.
type Interpreters struct {
	Show        []string // files.interpreters
	Packages    []string // distributions to show although they are installed in a way that is not shown
	HideModules []string // Python modules hidden under every name
}

// EnvPolicy is the [env] section.
type EnvPolicy struct {
	Allow  []string // names or patterns ("LC_*") taken from the caller
	Set    map[string]string
	Redact bool
}

// Limits is the [limits] section. Zero means that the policy says nothing.
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
	Output int64         `json:"output,omitempty"` // bytes kept of each of stdout and stderr
}

// Processes is the [processes] section.
type Processes struct {
	Spawn   bool           // the program may start processes
	Execute []rootfs.Grant // where given, the only files that may be executed
	Guard   string         // "" or "python"
	Steps   int64          // step budget of the guard; 0 means none
}

// View is what one exec alone sees, besides what every exec sees.
type View struct {
	Read  []rootfs.Grant
	Binds []rootfs.Bind
}
