package rootfs

import (
	"io/fs"

	"github.com/sandboxrun/sandboxrun/fault"
)

// EntryKind says what an Entry is.
type EntryKind string

// Kinds of entries.
const (
	EntryDir     EntryKind = "dir"
	EntryFile    EntryKind = "file"
	EntrySymlink EntryKind = "symlink"
)

// Entry is a directory, file or link that is made in the sandbox's own root before anything is mounted on it.
type Entry struct {
	Path    string      `json:"path"` // inside, absolute
	Kind    EntryKind   `json:"kind"`
	Mode    fs.FileMode `json:"mode,omitempty"`    // permission bits of a dir or file
	Content string      `json:"content,omitempty"` // of a file; the target of a link
	// Modified is the time of a copy's original, in nanoseconds since 1970: caches compare it. 0 is the time at which the entry is made.
	Modified int64 `json:"modified,omitempty"`
}

// MountKind says what a Mount is.
type MountKind string

// Kinds of mounts.
const (
	MountBind  MountKind = "bind"
	MountTmpfs MountKind = "tmpfs"
	MountMask  MountKind = "mask" // hides what is there: an empty file or directory that nobody can open, unless it is Mount.Empty
)

// Mount is one mount of the view. Its target exists before it is mounted: as an Entry, or on the host behind an earlier
// bind. The one exception is a target below an earlier tmpfs: the launcher makes it there when it mounts, with its parents.
// A bind takes along the mounts below its source. No two mounts of a View have the same target, a mount never comes
// after one below it, and masks come last.
type Mount struct {
	Kind     MountKind `json:"kind"`
	Source   string    `json:"source,omitempty"` // host path of a bind, with every link resolved
	Target   string    `json:"target"`           // inside, with every link resolved
	Writable bool      `json:"writable,omitempty"`
	Dir      bool      `json:"dir"`                // the target is a directory
	Size     int64     `json:"size,omitempty"`     // bytes, tmpfs
	Inodes   int64     `json:"inodes,omitempty"`   // tmpfs
	Mode     uint32    `json:"mode,omitempty"`     // of a tmpfs' root directory
	Owned    bool      `json:"owned,omitempty"`    // a tmpfs' root directory belongs to the program's user
	PerExec  bool      `json:"per_exec,omitempty"` // made anew for each exec
	Pin      bool      `json:"pin,omitempty"`      // a bind of what is there anyway, so that it cannot be renamed or removed
	Link     bool      `json:"link,omitempty"`     // the target is a symbolic link, which is mounted on and not followed
	Idmapped bool      `json:"idmapped,omitempty"` // a bind that shows the caller's files as the program's own; not set by Compile
	LeftOut  bool      `json:"left_out,omitempty"` // an empty directory or file in place of what the host has mounted there; not set by Compile
	NoExec   bool      `json:"no_exec,omitempty"`  // no file of it is executed or mapped as code; not set by Compile
	Content  string    `json:"content,omitempty"`  // of a generated file: Source is empty and the launcher writes Content to a file of its own and binds that
	Empty    bool      `json:"empty,omitempty"`    // a mask that can be opened, and in which nothing is
	// Without are names in the directory that a bind shows without them, relative to it: "foo.py", "__pycache__/foo.cpython-311.pyc".
	// An overlay hides them, so nothing can be mounted on them, and the directory has no mount of the host's below it.
	Without []string `json:"without,omitempty"`
	From    string   `json:"from"` // the rule of the policy, or the default, that asked for it
}

// Denied is a denied path in a place that the program sees. A mask lasts no longer than the file under it: the kernel
// drops it when somebody outside replaces that; and where nothing is, nothing can be mounted. So the launcher looks again
// at each exec. Below a writable grant the program itself could make what is not there; below a read-only one (Writable
// false) only the host can, and looking is all there is to do.
type Denied struct {
	Inside   string `json:"inside"`             // the path inside
	Host     string `json:"host"`               // the same path on the host
	Grant    string `json:"grant"`              // the host path of the grant that holds it; Host lies below it
	Writable bool   `json:"writable,omitempty"` // of that grant
	Empty    bool   `json:"empty,omitempty"`    // its mask reads as empty
	From     string `json:"from"`
}

// Gone is a path inside at which nothing is, though the mount shows the host's directory around it.
type Gone struct {
	Inside string `json:"inside"`
	Host   string `json:"host"`
	Dir    bool   `json:"dir,omitempty"`
	Link   bool   `json:"link,omitempty"` // the host has a symbolic link there
	From   string `json:"from"`
}

// Overlay is a directory for which Mount.Without is wanted.
type Overlay struct {
	Source string `json:"source"`        // on the host, with every link resolved
	Target string `json:"target"`        // inside
	Why    string `json:"why,omitempty"` // why it cannot be had, ready to print; empty: it can
}

// Emptied is a directory in which what should be absent is empty.
type Emptied struct {
	Dir   string // inside
	Names []string
	Why   string // ready to print
	From  string // the rule of the first
}

// LeftOut is a part of the host that a base leaves out.
type LeftOut struct {
	Path string `json:"path"` // on the host, and inside
	Why  string `json:"why"`  // ready to print
}

// View is what the program sees: first Entries are made, then Mounts are mounted in order.
type View struct {
	Entries []Entry   `json:"entries"`
	Mounts  []Mount   `json:"mounts"`
	Absent  []Denied  `json:"absent,omitempty"` // denied, and not there
	Masked  []Denied  `json:"masked,omitempty"` // denied, and masked by one of Mounts
	Gone    []Gone    `json:"gone,omitempty"`   // what Mount.Without hides
	Hidden  []LeftOut `json:"hidden,omitempty"` // what base "host" does not show
	Workdir string    `json:"workdir"`
	Skipped []string  `json:"skipped,omitempty"` // what was asked for and left out, ready to print

	Overlays []Overlay `json:"-"` // directories for which Mount.Without would be needed, and of which Request.Overlays does not say whether it can be had
	Emptied  []Emptied `json:"-"` // directories in which something is empty that should be absent

	Writable []string `json:"-"` // host paths that the policy lets programs write, also where another mount covers them
}

// EmptyFile is an empty file inside, in sandboxes that deny a path as empty: what an exec covers such a path by.
const EmptyFile = "/dev/.empty"

// Invalid is the error of a policy that this machine cannot carry out.
func Invalid(hint, format string, args ...any) *fault.Error {
	return fault.New(fault.PolicyInvalid, hint, format, args...)
}
