package hooks

import "golang.org/x/sys/unix"

// MaxGrants is of how many grants each is looked at. Of denies and secrets all are.
const MaxGrants = 200

// PathKind says what a path is to a sandbox.
type PathKind int

// Kinds of paths.
const (
	ReadOnlyGrant PathKind = iota
	WritableGrant          // a workspace or a tmpfs too
	Mask                   // a denied path
	Secret                 // a name that a secret could have inside
	OtherName              // another name that what is denied could have inside
	ProbePath              // what nobody has granted
	HiddenProc             // a file of /proc that is covered
	ReadOnlyProc           // a part of /proc that is read-only
	ReadOnlyOwn            // the sandbox's own: its root, /dev, generated files
	Foreign                // of a mount that is no grant
)

// Path is a path inside that is looked at.
type Path struct {
	Kind   PathKind
	Inside string
	Host   string // the same on the host; empty: there is none
	Dir    bool   // it is a directory, where Host does not tell
	// Of what is Foreign:
	Named  bool   // its name is of a mount that is no grant too
	Beside string // a directory in the same one that is not empty; empty: there is none
	// Idmapped is whether it shows the caller's files as the program's.
	Idmapped bool
}

// Subject is what is to be proven of one sandbox. The Plan has it.
type Subject struct {
	Network  bool     // it has a network namespace of its own
	Forwards []uint16 // ports of its loopback that must answer
	Paths    []Path
	Omitted  int      // grants beyond MaxGrants
	Denied   []string // host paths of denied files, which must have no name inside
	Env      []string // names of variables that every program has
	EnvAllow []string // names and patterns that are taken from the caller
	Affinity bool     // programs may not choose their processors

	ID    [2]uint32 // uid and gid of the program to the host
	Owner [2]uint32 // of the files on disk that are the program's where it is granted them
	// MayOwn says why the program may be the owner of what no policy grants it, as root is; empty: it is not.
	MayOwn string
}

// Node is what stat and statfs say of a path.
type Node struct {
	Err      error // it cannot be looked at
	Dev, Ino uint64
	Mode     uint32
	UID, GID uint32
	Rdev     uint64
	ReadOnly bool // its mount is
}

// Same says whether two names lead to one file.
func (n Node) Same(m Node) bool {
	return n.Err == nil && m.Err == nil && n.Dev == m.Dev && n.Ino == m.Ino
}

// Dir says whether it is a directory.
func (n Node) Dir() bool { return n.Err == nil && n.Mode&unix.S_IFMT == unix.S_IFDIR }

// Regular says whether it is a file with content of its own: opening it has no effect but that.
func (n Node) Regular() bool { return n.Err == nil && n.Mode&unix.S_IFMT == unix.S_IFREG }

// Special says whether it is a pipe, a socket or a device. To write to one changes no file system: a read-only mount does
// not keep anybody from it.
func (n Node) Special() bool { return n.Err == nil && !n.Dir() && !n.Regular() }

// PathSeen is what was seen of a Path.
type PathSeen struct {
	Inside, Outside Node
	Changed         bool  // somebody outside has replaced it while we looked
	Open            error // what opening it for reading inside said
	Write           error // what trying to write it inside said, without changing anything
	CanWrite        bool  // the launcher may write it outside
	Made            *Node // a nameless file that was made in it, as the host has it; nil: none was
	Changes         []Attempt
}

// Attempt is a change that was tried in a way that leaves all as it is.
type Attempt struct {
	Name string
	Err  error
}

// Reach is an attempt to reach something over the network.
type Reach struct {
	Target          string
	Inside, Outside error // nil: it was reached
}

// RefusedCall is a system call that the filter refuses, as answered with and without it.
type RefusedCall struct {
	Name                 string
	Want                 unix.Errno
	Unfiltered, Filtered error
}

// Namespace is one kind of namespace as different processes have it: the number of its file in /proc, 0 where unknown.
type Namespace struct {
	Name           string
	Host, Process1 uint64
	Inside         uint64
	PerExec        bool // each exec has its own
	Shared         bool // the policy gives the host's
}

// Signalled is a process of the host's, to which a signal that does nothing was sent.
type Signalled struct {
	PID             int
	Inside, Outside error
}

// LimitRead is a limit as decided and as read back.
type LimitRead struct {
	Name            string
	Want, Got, Host uint64
	Exact           bool // less is no better
	Err             error
}

// GroupRead is a control group that an exec should be in.
type GroupRead struct {
	Controllers string
	Want        string // how its path ends; empty: it can only be told by what it has counted
	Got         string
	Counted     bool // it has counted processor time
}

// Facts is what was seen from where a program would run, from the same process before, and from outside.
type Facts struct {
	TCP, UDP, Abstract []Reach
	OwnLoopback        error // a port of the sandbox's own was reached: nil
	Forwards           []Reach

	Paths      []PathSeen // in the order of Subject.Paths
	ProcDev    uint64     // the device of /proc inside
	HostID     [2]uint32  // uid and gid of the program to the host, as the kernel has added them to a message of it
	HostIDErr  error      // none came
	Launcher   [2]uint32  // those of the launcher
	Privileged bool       // the launcher has capabilities over files, which the program has not

	StatusAtEntry, Status map[string]string // /proc/self/status
	Securebits            int64
	SecurebitsErr         error
	Refused               []RefusedCall
	Namespaces            []Namespace

	Processes    []int // that /proc lists
	ProcessesErr error
	Signalled    []Signalled

	Descriptors     []int // less the one that lists them
	DescriptorsErr  error
	HostDescriptors int // of the launcher

	Env    []string // names of the variables that execve would be given
	Canary string   // a variable that only the caller has

	Limits []LimitRead
	Groups []GroupRead
}
