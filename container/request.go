package container

import (
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxrun/sandboxrun/container/owner"
	"github.com/sandboxrun/sandboxrun/container/puts"
	"github.com/sandboxrun/sandboxrun/container/stream"
	"github.com/sandboxrun/sandboxrun/forkexec"
	"github.com/sandboxrun/sandboxrun/record"
	"github.com/sandboxrun/sandboxrun/spec/policy"
)

// This file has what a caller asks for: of a sandbox, of an exec, and what an exec brings and takes away.

// Options are what a sandbox is made with, beside its plan.
type Options struct {
	Owner *owner.Owner // nil: only Delete ends it
	// Once says that its creator runs one program in it: the short way of exec is not prepared.
	Once bool
	// Record is a directory of the host in which a record is kept, or empty; absolute. The program must not see it.
	Record   string
	Versions map[string]string // of the programs and libraries that make it, for the record
}

// Request is one exec. How it is sent to a monitor is in monitor.go.
type Request struct {
	Args   []string          `json:"-"`
	Dir    string            `json:"-"` // inside; empty: the policy's
	Caller map[string]string `json:"-"` // the caller's environment, from which the policy takes what it allows
	Env    map[string]string `json:"-"` // variables of this exec alone
	// Translate replaces paths of the host in Args, Dir, Env and the variables of Caller by their names inside. Follow follows symlinks in
	// them; nil: hostfs.ResolveSoFar.
	Translate bool
	Follow    func(string) string `json:"-"`
	Timeout   time.Duration       // 0, or more than the sandbox may take: as the sandbox
	Memory    int64               // bytes; 0, or more than the sandbox may use: as the sandbox
	Pids      int64               // the same for processes and threads
	Stdin     io.Reader           `json:"-"` // nil: empty
	Stdout    io.Writer           `json:"-"` // nil: kept for the Result
	Stderr    io.Writer           `json:"-"`
	Tty       *stream.Size        `json:"-"` // not nil: the program gets a terminal of its own, of that size, and Stderr stays empty
	// TtySettings are what its terminal begins with; nil: the kernel's.
	TtySettings *unix.Termios `json:"-"`
	// OneOutput says that Stdout and Stderr are one file. Then one pipe leads there, unless OutputDir keeps the two apart.
	OneOutput bool `json:"-"`
	// OutputDir is a directory of the host where the whole streams are kept too, up to OutputDirMax each; absolute.
	OutputDir string `json:"-"`
	// Cancel ends a start that blocks; may be nil.
	Cancel *Cancel `json:"-"`
	Carried
	// Warm says that the program may get a Python interpreter that was started ahead (Sandbox.Warm). Result.Warm says whether it did.
	Warm bool `json:"-"`

	files    []stream.Files    // that the streams are written to besides
	detached bool              // a monitor looks after it
	passed   map[string]string // Caller, with names inside; nil: Caller
	env      []string          // what the program has
	redactor *record.Redactor
}

// Cancel ends a start that blocks, by a signal: then the Result says that this has ended the program. By SIGKILL it is as Running.Cancel.
type Cancel = forkexec.Cancel

// Put is a file that is written for a program, with the program's rights, before it starts.
type Put = puts.Put

// Carried is what an exec brings with it and takes away.
type Carried struct {
	Put     []Put
	Fresh   []string  // directories that are empty for this exec and gone after it: inside, absolute, or relative to Dir, or below "~"
	Collect []Collect // what is read when all of the exec has ended
	// CollectMax is how many bytes of all that is collected together the result holds; 0: no bound but those of each.
	CollectMax int64
	// Answer gives the program descriptor 3, and $SANDBOXRUN_RESULT with that number: what it writes there is Result.Answer.
	Answer bool
	// View is what this exec alone sees besides, or does not see.
	View View
	// KillOnOutput ends the exec when one of its streams is larger than limits.output.
	KillOnOutput bool
}

// View is a view of the policy, by its name, and what is asked for besides.
type View struct {
	Name string
	policy.View
}

func (v *View) empty() bool {
	return v.Name == "" && len(v.Read)+len(v.Binds)+len(v.Deny) == 0
}

// Collect is a file, a directory or a pattern (path.Match in each part) below the working directory.
type Collect struct {
	Path string
	Max  int64  // bytes together; 0: transfer.DefaultMax
	To   string // a new file or directory of the host, absolute, instead of the result; Path is then no pattern
}

const answerFD = "3"
