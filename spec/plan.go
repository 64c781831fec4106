package spec

import (
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sandboxrun/sandboxrun/hooks"
	"github.com/sandboxrun/sandboxrun/rootfs"
)

// Plan is what has been decided. It never changes after Resolve, and nothing later decides again.
type Plan struct {
	Name         string       `json:"name,omitempty"`
	PolicyFile   string       `json:"policy_file"`
	PolicyDigest string       `json:"policy_digest"`
	Spec         *specs.Spec  `json:"spec"` // the OCI configuration; a bundle of it runs under runc and crun too
	View         *rootfs.View `json:"view"`
	Exec         Exec         `json:"exec"`
	Network      string       `json:"network"` // the mode
	Relay        *Relay       `json:"relay,omitempty"`
	SetGroup     bool         `json:"-"` // a writable grant is a tree whose directories have the set-group-id bit
	LowPorts     bool         `json:"-"` // programs may listen on ports below 1024 of a network of their own
	Limits       []Limit      `json:"limits,omitempty"`
	Cgroups      Cgroups      `json:"cgroups,omitzero"` // those that hold some of them
	Nproc        bool         `json:"nproc,omitempty"`  // as in Host
	// PolicyPaths are the files that the policy was read from, absolute.
	PolicyPaths []string `json:"-"`
	// Search lists the granted directories in which files are looked for that need a mount of their own.
	Search []Search `json:"-"`
	// Checks is what has to be proven of the sandbox before its first program.
	Checks hooks.Subject `json:"-"`
	// Weaker lists the protections that were asked for and cannot be had here.
	Weaker []Weakness `json:"weaker,omitempty"`
	// BestEffort is whether the policy does with less where the machine cannot give what it asks for.
	BestEffort bool `json:"best_effort,omitempty"`
	// Warnings are for the user to see at the start.
	Warnings []string `json:"warnings,omitempty"`
}

// Search is a granted directory, or file.
type Search struct {
	Source, Target string // on the host, and inside
	Writable       bool
}

// Weakness is a protection that was asked for and cannot be had, with the reason.
type Weakness struct {
	What   string `json:"what"`
	Reason string `json:"reason"`
}

// Exec is what every exec of a sandbox has in common.
type Exec struct {
	UID int `json:"uid"` // the program's numbers in the sandbox's user namespace
	GID int `json:"gid"`
	// OwnID is whether these are an id that owns nothing, and no other sandbox's (Host.Program).
	OwnID    bool `json:"own_id,omitempty"`
	ShownUID int  `json:"shown_uid"` // and as it sees itself
	ShownGID int  `json:"shown_gid"`
	// DropGroups is whether the caller's supplementary groups are dropped. Without privilege the kernel keeps them.
	DropGroups bool              `json:"drop_groups"`
	Dir        string            `json:"dir"`
	Env        map[string]string `json:"env"`       // what it has at least
	EnvAllow   []string          `json:"env_allow"` // names and patterns that are taken from the caller
	EnvSet     map[string]string `json:"env_set"`
	// Redact is whether the values of key-like variables are taken out of what is kept.
	Redact   bool     `json:"redact,omitempty"`
	Hide     []string `json:"hide"`     // paths of its /proc that are hidden
	Readonly []string `json:"readonly"` // and that it cannot write
	Umask    int      `json:"umask"`
	Limits   Limits   `json:"limits,omitzero"`
	// CPUFollowsWall is whether Limits.CPU is what Wall makes it by default: an exec with another time has another.
	CPUFollowsWall bool `json:"cpu_follows_wall,omitempty"`
	Affinity       int  `json:"affinity,omitempty"` // on how many processors the program is kept; 0: as its caller
	// CoreHandled is whether the host's core handler runs when a program crashes: nothing keeps it from that here.
	CoreHandled bool `json:"core_handled,omitempty"`
}

// CoreLimit is the RLIMIT_CORE of every program.
func (e *Exec) CoreLimit() uint64 {
	if e.CoreHandled {
		return 0 // there may be no right to more
	}
	return 1
}

// Error is a policy that cannot be carried out, or a machine that cannot do it.
type Error struct {
	Code    string // a stable word, such as "policy_invalid"
	Message string
	Hint    string // what the user can do; may be empty
}

func (e *Error) Error() string { return e.Message }
