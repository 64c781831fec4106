// Package rootfs has the files of a policy (Policy) and what they become (View): an ordered list of mounts, and the few entries that
// the sandbox's own root needs. It answers what a view shows: what is at a path inside (Index, View.Lookup), under which names a host
// path is inside (View.Names), and what the policy lets programs write (Writables). It changes nothing.
//
// Each step on the way has a package below this one:
//
//	pathname  paths as text, and the walk over symbolic links
//	hostfs    the host's files and mounts, read-only: Tree, and the machine's own
//	survey    which data of installed programs every user of the host may read
//	compile   Policy -> View
//	elf       what ELF files need to be loaded
//	explain   why a path is, or is not, in a View
//
// It imports of ours hostfs, pathname and fault.
package rootfs

import (
	"slices"
	"strings"
)

// Policy is the part of a policy that is about files: the sections [workspace], [files] and [[bind]].
// Every path in it is absolute and clean: the loader has expanded "~", "$VAR" and relative paths.
type Policy struct {
	Workspace *Workspace
	Base      Base
	Read      []Grant
	Write     []Grant
	Deny      []Grant
	DenyEmpty []Grant // denies of which the masks read as an empty file or directory, instead of being refused
	Tmpfs     []Tmpfs
	Home      *Tmpfs // the home directory inside, which every sandbox has; Path is empty
	Secrets   []Grant
	Binds     []Bind
	// Empty are directories of the host, with every link resolved, that are shown empty and read-only where a grant or the base
	// would show them. A more specific grant is shown all the same.
	Empty []Grant
	// Gone are host paths, with every link in their directories resolved, that are absent inside, or empty where that cannot be had: hidden
	// modules.
	Gone []Grant
	// Workdir is the program's working directory inside; empty means the workspace, else "/".
	Workdir Grant
	// Missing says what a grant whose host path does not exist means: "error" or "skip".
	Missing string
}

// Grant is a path together with the place in the policy that names it.
type Grant struct {
	Path string
	// From is where the policy says so, ready to print: "task.toml:12:9: files.read".
	From string
}

// SourceTmpfs is the source of a workspace in memory.
const SourceTmpfs = "tmpfs"

// SourceDisk is the source of a workspace on disk that sandboxrun makes.
const SourceDisk = "disk"

// Workspace is the directory that a program works in.
type Workspace struct {
	Source   string // a host directory, SourceTmpfs, or SourceDisk, for which one is made before it is compiled to be shown
	Parent   string // of a directory that is made on disk; empty: the default
	Path     string // where it is inside
	Size     int64  // bytes, tmpfs only; 0 means the default
	Lifetime string // "sandbox" or "exec"
	From     string
}

// Denies are all denied paths.
func (p *Policy) Denies() []Grant { return slices.Concat(p.Deny, p.DenyEmpty) }

// Base kinds: what the program's root shows before any grant.
const (
	BaseSystem = "system" // /usr, /bin, /lib*, and what installed programs keep in /etc and /var for every user
	BaseHost   = "host"   // the host's root read-only, with homes, run directories and mounts hidden
	BaseNone   = "none"   // nothing
	BaseRootfs = "rootfs" // a directory that holds a root file system
)

// Base is what the program's root shows before any grant.
type Base struct {
	Kind string // one of the Base constants
	Dir  string // the directory, for BaseRootfs
	From string
}

// Tmpfs is an empty writable directory in memory.
type Tmpfs struct {
	Path   string
	Size   int64 // bytes; 0 means the default
	Inodes int64 // number of files; 0 means the default
	// Lifetime is "sandbox", or "exec": each exec gets a new one.
	Lifetime string
	From     string
}

// Bind shows a host path under a name of its own.
type Bind struct {
	Source   string
	Target   string
	Writable bool
	Copy     bool // a private copy, which is made before it is compiled to be shown, and is then Writable
	From     string
}

// FromDefault names, in Mount.From, what every sandbox has.
const FromDefault = "default"

// FromState is Mount.From of a mask that no policy asked for: a state directory is below it.
const FromState = "the state directory"

// PlaceOf cuts the key off a From: "task.toml:12:9: files.read" stands at "task.toml:12:9".
func PlaceOf(from string) string {
	if i := strings.LastIndex(from, ": "); i > 0 {
		return from[:i]
	}
	return from
}
