// Package spec turns a policy and the facts of a machine (Host) into a Plan: everything that a sandbox has and needs. It is pure: it
// makes no system call, starts no process and reads no clock. So every decision can be tested with made-up machines, and package
// container only carries decisions out.
//
// Packages below it: document (TOML and JSON with positions), policy (the loader), seccomp (filters) and answer (why a variable or a
// host is in reach). It imports of ours policy, seccomp, rootfs with its packages, netpolicy, hooks, interp and fault.
package spec

import (
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/netpolicy"
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// Plan is everything that a policy becomes on this machine. It never changes after Resolve, and no later step decides again.
type Plan struct {
	Name         string `json:"name,omitempty"`
	PolicyFile   string `json:"policy_file"`
	PolicyDigest string `json:"policy_digest"`
	// Filter is the profile of system calls.
	Filter   *specs.LinuxSeccomp `json:"filter,omitempty"`
	IDs      IDs                 `json:"ids"`
	View     *rootfs.View        `json:"view"`
	Exec     Exec                `json:"exec"`
	Network  string              `json:"network"` // the mode
	Relay    *Relay              `json:"relay,omitempty"`
	LowPorts bool                `json:"-"` // programs may listen on ports below 1024 of the sandbox's own network
	Limits   []Limit             `json:"limits,omitempty"`
	Cgroups  Cgroups             `json:"cgroups,omitzero"` // those that enforce some limits
	Nproc    bool                `json:"nproc,omitempty"`  // as in Host
	// PolicyPaths are the absolute paths of the policy's files.
	PolicyPaths []string `json:"-"`
	// Files are the policy's, with what its interpreters stand for.
	Files rootfs.Policy `json:"-"`
	// Kept decides what one exec sees besides.
	Kept *Kept `json:"-"`
	// Search lists the grants in which the launcher searches for files that need a mount of their own.
	Search []Search `json:"-"`
	// Checks is what the checks at the start have to prove.
	Checks hooks.Subject `json:"-"`
	// Weaker lists the protections that this machine gives only in part.
	Weaker []Weakness `json:"weaker,omitempty"`
	// BestEffort: the policy accepts weaker protections.
	BestEffort bool `json:"best_effort,omitempty"`
	// Warnings are printed at the start.
	Warnings []string `json:"warnings,omitempty"`

	unlisted string // see hooks.Subject
}

// IDs are the maps of user and group ids: of the sandbox's user namespace, and of its idmapped grants, which are empty if it has none.
type IDs struct {
	UIDs      []specs.LinuxIDMapping `json:"uids"`
	GIDs      []specs.LinuxIDMapping `json:"gids"`
	GrantUIDs []specs.LinuxIDMapping `json:"grant_uids,omitempty"`
	GrantGIDs []specs.LinuxIDMapping `json:"grant_gids,omitempty"`
}

// OwnNetwork reports whether the sandbox has a network namespace of its own.
func (p *Plan) OwnNetwork() bool { return p.Network != netpolicy.Host }

// Search is a granted directory or file.
type Search struct {
	Source, Target string // on the host, and inside
	Writable       bool
}

// Weakness is a protection that this machine gives only in part, with the reason.
type Weakness struct {
	What   string `json:"what"`
	Reason string `json:"reason"`
}

// Exec has the properties of every exec of a sandbox.
type Exec struct {
	UID int `json:"uid"` // the program's numbers in the sandbox's user namespace
	GID int `json:"gid"`
	// OwnID: these are an id that owns no file and that no other sandbox has (Host.Program).
	OwnID    bool `json:"own_id,omitempty"`
	ShownUID int  `json:"shown_uid"` // as the program sees it
	ShownGID int  `json:"shown_gid"`
	// DropGroups: the launcher drops the caller's supplementary groups. The kernel does not allow that without privilege.
	DropGroups bool              `json:"drop_groups"`
	Dir        string            `json:"dir"`
	Env        map[string]string `json:"env"`                // variables that every program has
	EnvAllow   []string          `json:"env_allow"`          // names and patterns of variables that pass from the caller
	EnvDeny    []string          `json:"env_deny,omitempty"` // of these, names and patterns of variables that do not pass
	EnvSet     map[string]string `json:"env_set"`
	// Redact: values of key-like variables are redacted in stored output.
	Redact   bool     `json:"redact,omitempty"`
	Hide     []string `json:"hide"`     // masked paths of its /proc
	Readonly []string `json:"readonly"` // read-only paths of its /proc
	Umask    int      `json:"umask"`
	// Execute are the only files that the program can execute, inside, with every symlink resolved; empty: all.
	Execute []string `json:"execute,omitempty"`
	// NoSpawn: the program starts no process, and executes no other program.
	NoSpawn bool `json:"no_spawn,omitempty"`
	// NoNative: what the program can write is mounted noexec, and it makes no files in memory.
	NoNative bool `json:"no_native,omitempty"`
	// Userns: the program may make user namespaces, and in them all others but time namespaces.
	Userns bool `json:"userns,omitempty"`
	// NoProc: the program sees no /proc. An empty directory covers it.
	NoProc bool `json:"no_proc,omitempty"`
	// Guard is the guard in the interpreter; nil: none.
	Guard  *Guard        `json:"guard,omitempty"`
	Limits policy.Limits `json:"limits,omitzero"`
	// CPUFollowsWall: Limits.CPU is the default for Limits.Wall, so an exec with another wall limit has another.
	CPUFollowsWall bool `json:"cpu_follows_wall,omitempty"`
	Affinity       int  `json:"affinity,omitempty"` // number of processors of the program; 0: as its caller
	// CoreHandled: the host's core handler runs when a program crashes, because this machine cannot prevent it.
	CoreHandled bool `json:"core_handled,omitempty"`
}

// CoreLimit is the RLIMIT_CORE of every program.
func (e *Exec) CoreLimit() uint64 {
	if e.CoreHandled {
		return 0 // the launcher may not be allowed a higher limit
	}
	return 1
}

// Guard is the guard in a Python interpreter.
type Guard struct {
	Steps int64 `json:"steps,omitempty"` // step budget; 0: none
	// Native are directories, inside: native extensions may be loaded from them alone. The program can change none of them.
	Native []string `json:"native"`
}
