package compile

import (
	"github.com/sandboxrun/sandboxrun/rootfs"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// Identity is the program's user as the generated /etc/passwd and /etc/group show it.
type Identity struct {
	UID, GID int
	Name     string // never empty
	Group    string // never empty
	Home     string // inside
	// Privileged is true where the launcher is root: then the program's files are root's own and only mounts protect
	// the host's secret files, not their modes.
	Privileged bool
	// Apart is true where the program has an id of its own, which owns nothing: it may read of the host what everybody may, and
	// what is granted as the launcher may.
	Apart bool
}

// Request is all that Compile looks at.
type Request struct {
	Policy   rootfs.Policy
	Tree     hostfs.Tree `json:"-"`
	User     Identity
	Hostname string
	// ResolvConf is the content of /etc/resolv.conf inside.
	ResolvConf string
	// Guarded are host paths, with every link resolved, that a program may not change even where a grant lets it write; From
	// says what each is.
	Guarded []rootfs.Grant
	// Hidden are host paths, with every link resolved, that are masked wherever the view would show them, as the state directory is.
	// They need not exist.
	Hidden []string
	// Overlays says for which directories Mount.Without can be had. Of any other what should be absent is empty, and View.Overlays names it.
	Overlays []rootfs.Overlay `json:",omitempty"`
	// TmpfsSize is how large, in bytes, a file system in memory is of which the policy does not say; 0: 1 GiB.
	TmpfsSize int64
}
