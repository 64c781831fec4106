package hooks

import "golang.org/x/sys/unix"

// MaxGrants is the most grants that the checks look at. They look at every deny and every secret.
const MaxGrants = 200

// PathKind is the role of a path in a sandbox.
type PathKind int

// Kinds of paths.
const (
	ReadOnlyGrant PathKind = iota
	WritableGrant          // a workspace or a tmpfs too
	Mask                   // a denied path
	Secret                 // a path that a secret could have inside
	OtherName              // another path that a denied file could have inside
	ProbePath              // a sensitive path of the host, which the view must not have unless a grant shows it
	HiddenProc             // a masked file of /proc
	ReadOnlyProc           // a part of /proc that is read-only
	ReadOnlyOwn            // of the sandbox itself: its root, /dev, generated files
	Gone                   // nothing is there, though the directory around it is shown
	Foreign                // on a mount that is not a grant
)

// Path is a path inside that the checks look at.
type Path struct {
	Kind   PathKind
	Inside string
	Host   string // the same file on the host; empty: it has none
	Dir    bool   // it is a directory; set only if Host is empty
	// Named and Beside are only for Foreign.
	Named  bool   // its directory is on a mount that is not a grant either
	Beside string // a directory beside it that has entries; empty: there is none
	// Empty: a Mask that can be opened, and in which nothing is.
	Empty bool
	// Overlay: an overlay is mounted over the directory, so its numbers are not the host's.
	Overlay bool
	// NoExec: a WritableGrant from which no file is executed or mapped as code.
	NoExec bool
	// Idmapped: the mount shows the caller's files as files of the program.
	Idmapped bool
}

// Subject is what the checks have to prove of one sandbox. It comes from the Plan.
type Subject struct {
	Network  bool     // the sandbox has its own network namespace
	Forwards []uint16 // ports of its loopback that must accept connections
	Paths    []Path
	Omitted  int      // number of grants beyond MaxGrants
	Denied   []string // host paths of denied files, which no path inside may show
	Env      []string // names of variables that every program has
	EnvDeny  []string // of these, those that it does not get
	EnvAllow []string // names and patterns of variables that the program gets from the caller
	Affinity bool     // programs may not choose their processors
	Unlisted string   // a file of the view that no program may execute because of processes.execute; empty: there is none
	Userns   bool     // programs may make user namespaces
	NoSpawn  bool     // programs start no process and execute no other program
	NoProc   bool     // programs see no /proc

	ID    [2]uint32 // uid and gid of the program to the host
	Owner [2]uint32 // uid and gid, on disk, of the files that belong to the program in grants
	// MayOwn is the reason why the program may own files that no policy grants, as root does; empty: it owns none.
	MayOwn string
}

// Node is the result of stat and statfs for a path.
type Node struct {
	Err      error // of stat
	Dev, Ino uint64
	Mode     uint32
	UID, GID uint32
	Rdev     uint64
	Size     int64 // bytes
	ReadOnly bool  // the mount is read-only
	NoExec   bool  // the mount is noexec
}

// Same reports whether two paths lead to one file.
func (n Node) Same(m Node) bool {
	return n.Err == nil && m.Err == nil && n.Dev == m.Dev && n.Ino == m.Ino
}

// Dir reports whether it is a directory.
func (n Node) Dir() bool { return n.Err == nil && n.Mode&unix.S_IFMT == unix.S_IFDIR }

// Regular reports whether it is a regular file. To open one has no side effect.
func (n Node) Regular() bool { return n.Err == nil && n.Mode&unix.S_IFMT == unix.S_IFREG }

// special reports whether it is a pipe, a socket or a device. To write to one changes no file system, so a read-only mount
// allows it.
func (n Node) special() bool { return n.Err == nil && !n.Dir() && !n.Regular() }

// PathSeen has the facts of a Path.
type PathSeen struct {
	Inside, Outside Node
	Changed         bool  // somebody outside replaced it during the check
	Open            error // result of opening it for reading inside
	Entries         int   // that it has, if it is a directory and a Mask that is Empty
	Write           error // result of an attempt to write it inside that changes nothing
	CanWrite        bool  // the launcher may write it outside
	Made            *Node // a nameless file that the program made in it, as the host sees it; nil: it made none
	Changes         []Attempt
	Nested          []Attempt // made in namespaces of the program's own
}

// Attempt is an attempted change, in a form that changes nothing even if the kernel allows it.
type Attempt struct {
	Name string
	Err  error
}

// Reach is an attempt to reach something over the network.
type Reach struct {
	Target          string
	Inside, Outside error // nil: the target answered
}

// RefusedCall is a system call that the filter refuses, with its results with and without the filter.
type RefusedCall struct {
	Name                 string
	Want                 unix.Errno
	Unfiltered, Filtered error
}

// Namespace is one kind of namespace in different processes: the inode of its file in /proc; 0 is unknown.
type Namespace struct {
	Name           string
	Host, Process1 uint64
	Inside         uint64
	PerExec        bool // each exec has its own one
	Shared         bool // the policy shares the host's
}

// Signalled is a process of the host to which signal 0 was sent.
type Signalled struct {
	PID             int
	Inside, Outside error
}

// LimitRead is a limit as planned and as read back.
type LimitRead struct {
	Name            string
	Want, Got, Host uint64
	Exact           bool // a lower value is broken too
	Err             error
}

// GroupRead is a cgroup that an exec should be in.
type GroupRead struct {
	Controllers string
	Want        string // suffix of its path; empty: the process cannot see its path, and only Counted shows it
	Got         string
	Counted     bool // the cgroup has counted processor time
}

// ProcSeen is what the program sees at /proc.
type ProcSeen struct {
	Err      error // of opening or listing it
	Entries  int
	Type     int64 // of its file system: unix.PROC_SUPER_MAGIC
	ReadOnly bool
	Self     error // of lstat of /proc/self
	Make     error // of making a directory in it
	HostType int64 // of the host's /proc
}

// Facts are the observations from where a program would run, from the same process before, and from outside.
type Facts struct {
	TCP, UDP, Abstract []Reach
	OwnLoopback        error // result of connecting to a port of the sandbox's own loopback
	Forwards           []Reach

	Proc    ProcSeen
	Paths   []PathSeen // in the order of Subject.Paths
	ProcDev uint64     // the device of /proc inside
	// Nested are attempts, in namespaces of the program's own, to see what the mounts around it hide.
	Nested     []Attempt
	HostID     [2]uint32 // uid and gid of the program to the host, as the kernel added them to its message
	HostIDErr  error     // no message arrived
	Launcher   [2]uint32 // uid and gid of the launcher
	Privileged bool      // the launcher has capabilities over files; the program has none

	StatusAtEntry, Status map[string]string // /proc/self/status
	Securebits            int64
	SecurebitsErr         error
	Refused               []RefusedCall
	Namespaces            []Namespace

	Processes    []int // pids that the exec's procfs lists, also where a cover keeps the program from it
	ProcessesErr error
	Signalled    []Signalled

	Descriptors     []int // without the one that lists them, and the check's own of a covered procfs
	DescriptorsErr  error
	HostDescriptors int // number of descriptors of the launcher

	Env    []string // names of the variables that execve would get
	Canary string   // a variable that only the caller has

	Limits []LimitRead
	Groups []GroupRead
}
